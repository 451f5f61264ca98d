/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger's program in C99: writes random bytes from one half of its memory to the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <transfer_engine_c.h>

#define LENGTH 123457

static char memory[2 * LENGTH + 5];

static int transfer(transfer_engine_t engine)
{
    transfer_request_t request = {OPCODE_WRITE, memory + 1, LOCAL_SEGMENT, 0, LENGTH};
    transfer_status_t status = {STATUS_WAITING, 0};
    batch_id_t batch = allocateBatchID(engine, 1);
    long polls = 0;

    request.target_offset = (uint64_t)(uintptr_t)(memory + LENGTH + 4);
    if (batch == INVALID_BATCH || submitTransfer(engine, batch, &request, 1))
        return 1;
    while (status.status == STATUS_WAITING && ++polls < 1000000000L) {
        if (getTransferStatus(engine, batch, 0, &status))
            return 1;
    }
    return status.status != STATUS_COMPLETED || freeBatchID(engine, batch);
}

int main(void)
{
    transfer_engine_t engine =
        createTransferEngine("P2PHANDSHAKE", "127.0.0.1:0", "127.0.0.1", 0, 0);
    size_t i;

    srand((unsigned)time(NULL));
    for (i = 0; i < sizeof(memory); i++)
        memory[i] = (char)rand();
    if (!engine || registerLocalMemory(engine, memory, sizeof(memory), "*", 1))
        return 1;
    if (transfer(engine) || memcmp(memory + 1, memory + LENGTH + 4, LENGTH))
        return 2;
    if (unregisterLocalMemory(engine, memory))
        return 3;
    destroyTransferEngine(engine);
    puts("ok");
    return 0;
}
