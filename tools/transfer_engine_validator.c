/* SPDX-License-Identifier: Apache-2.0 */
/* Writes random blocks to a target, reads them back and compares, in every worker, for a while. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common_flags.h"
#include "common_load.h"
#include "common_setup.h"
#include "common_units.h"
#include "te.h"

#define TOOL "transfer_engine_validator"

static int run_target(struct setup *setup)
{
    bool ok = setup_open(setup, setup->flags->buffer_size);
    if (ok)
        setup_serve(setup);
    setup_close(setup);
    return ok ? 0 : 1;
}

static bool validate(const struct setup *setup)
{
    const struct setup_flags *flags = setup->flags;
    static struct load_result result;
    struct load load = {
        .setup = setup,
        .tool = TOOL,
        .block = flags->block_size,
        .batch = flags->batch_size,
        .threads = flags->threads,
        .seconds = flags->duration,
        .batches = flags->batches,
        .deadline_ms = flags->deadline_ms,
        .verify = true,
        .tell_workers = true,
        .progress = isatty(STDERR_FILENO) == 1,
        .report_bytes = units_report(flags->report_unit),
        .report_unit = flags->report_unit,
        .precision = flags->report_precision,
    };
    bool ok = load_run(&load, &result);
    if (ok)
        load_report(stdout, &load, &result);
    return ok;
}

static int run_initiator(struct setup *setup, uint64_t need)
{
    uint64_t length = setup_raise(TOOL, setup->flags->buffer_size, 2 * need);
    bool ok = setup_open_both(setup, length, need) && validate(setup);
    setup_close(setup);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct setup setup;
    struct setup_flags flags = {.init_mem = true};
    const struct flag_table table = {setup_flag_table, setup_flag_count, &flags};
    struct flags line = {
        .tool = TOOL,
        .about =
            "Checks that data arrives whole: the initiator writes random blocks to the target,\n"
            "reads them back and compares every byte. --operation is accepted and not used.",
        .tables = &table,
        .count = 1,
    };
    int status = flags_parse(&line, argc, argv);
    if (status >= 0)
        return status;
    if (!setup_begin(&setup, &flags, &line))
        return 2;
    uint64_t need = setup_need(flags.block_size, flags.batch_size, flags.threads);
    if (!need) {
        setup_fail(&setup, "block * batch * threads is too large");
        return 2;
    }
    setup_block_signals();
    return strcmp(flags.mode, "target") == 0 ? run_target(&setup) : run_initiator(&setup, need);
}
