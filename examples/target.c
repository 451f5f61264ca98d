/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offers memory to other processes. It prints the name by which they open its segment, waits until one of
 * them says that it has written, and checks what came. The peers, of which one is enough, are initiator.c,
 * mooncake.cc, rust/ and go/.
 */
#include <poll.h>
#include <stdio.h>
#include <te.h>
#include <time.h>

enum { SIZE = 2 << 20, SECONDS = 600 };

static int failed(const char *what)
{
    fprintf(stderr, "target: %s: %s\n", what, te_errmsg());
    return 1;
}

/* Until a peer has sent a message; nothing else has to be called while peers read and write. */
static int wait_for_message(te_engine *engine)
{
    const time_t end = time(NULL) + SECONDS;
    te_notification *messages;
    size_t n = 0;

    while (n == 0) {
        if (te_notify_recv(engine, &messages, &n))
            return failed("te_notify_recv");
        if (n == 0 && time(NULL) > end)
            return fprintf(stderr, "target: nobody came within %d s\n", SECONDS), 1;
        if (n == 0)
            poll(NULL, 0, 1);
    }
    printf("target: message \"%s\": %s\n", messages[0].name, messages[0].msg);
    te_notify_free(messages, n);
    return 0;
}

static int serve(te_engine *engine, unsigned char *memory)
{
    char name[256];
    int wrong = 0;

    for (size_t i = 0; i < SIZE; i++)
        memory[i] = (unsigned char)(i * 7 + i / 251);
    if (te_register(engine, memory, SIZE, "*", TE_REMOTE_RW))
        return failed("te_register");
    if (te_engine_name(engine, name, sizeof(name)))
        return failed("te_engine_name");
    printf("target: %s\n", name);
    fflush(stdout); /* whoever starts both reads the name from a pipe */
    if (wait_for_message(engine))
        return 1;
    if (te_unregister(engine, memory)) /* from here on no peer can touch it */
        return failed("te_unregister");
    for (size_t i = 0; i < SIZE; i++)
        wrong += memory[i] != (unsigned char)~(i * 7 + i / 251);
    printf("target: %d bytes came back inverted, %d of them wrong\n", SIZE, wrong);
    return wrong != 0;
}

int main(void)
{
    te_engine *engine;
    void *memory;
    int rc;

    if (te_engine_create(NULL, &engine))
        return failed("te_engine_create");
    rc = te_alloc(engine, SIZE, "*", &memory) ? failed("te_alloc") : serve(engine, memory);
    te_engine_destroy(engine); /* frees what is left, the memory included */
    return rc;
}
