/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "common_units.h"
#include "trace_replay.h"

static double rate(const struct replay_result *res)
{
    return res->seconds > 0 ? (double)res->bytes / res->seconds : 0;
}

static uint64_t asked(const struct replay_result *res)
{
    return res->hit + res->missed + res->left_out;
}

static double hit_rate(const struct replay_result *res)
{
    return asked(res) ? (double)res->hit / (double)asked(res) : 0;
}

static double quantile_ms(const struct replay_result *res, double share)
{
    return hist_quantile_us(&res->completion, share) / 1e3;
}

void replay_print(FILE *out, const struct replay *r, const struct replay_result *res)
{
    const struct setup_flags *flags = r->setup->flags;
    int digits = (int)flags->report_precision;

    if (res->failed || res->corrupt) {
        fprintf(out, "Trace failed after %.*f s and %zu of %zu requests\n", digits, res->seconds,
                res->requests, r->trace.count);
        return;
    }
    fprintf(out, "Trace completed: duration %.*f, requests %zu of %zu, goodput %.*f %s/s\n", digits,
            res->seconds, res->requests, r->trace.count, digits,
            rate(res) / units_report(flags->report_unit), flags->report_unit);
    fprintf(out,
            "Blocks: %" PRIu64 " of %" PRIu64 " bytes, %" PRIu64 " hit (%.2f %%), %" PRIu64
            " missed, %" PRIu64 " evicted from %zu slots\n",
            asked(res), r->block, res->hit, 100 * hit_rate(res), res->missed, res->evicted,
            r->slots);
    if (res->in_part)
        fprintf(out,
                "Moved in part: %zu requests, for which the cache is too small; %" PRIu64
                " blocks left out\n",
                res->in_part, res->left_out);
    fprintf(out, "Written: %" PRIu64 " bytes\n", res->bytes);
    fprintf(out, "Request completion: avg %.3f, p50 %.3f, p90 %.3f, p99 %.3f, max %.3f ms\n",
            hist_mean_us(&res->completion) / 1e3, quantile_ms(res, 0.5), quantile_ms(res, 0.9),
            quantile_ms(res, 0.99), (double)res->completion.max_ns / 1e6);
    if (r->verify)
        fprintf(out, "Verified: %" PRIu64 " bytes, 0 errors\n", res->verified);
}

static json_t *completion_json(const struct replay_result *res)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "avg", hist_mean_us(&res->completion) / 1e3,
                     "min", (double)res->completion.min_ns / 1e6, "p50", quantile_ms(res, 0.5),
                     "p90", quantile_ms(res, 0.9), "p99", quantile_ms(res, 0.99), "max",
                     (double)res->completion.max_ns / 1e6);
}

json_t *replay_json(const struct replay *r, const struct replay_result *res)
{
    const struct setup_flags *flags = r->setup->flags;
    double unit = units_report(flags->report_unit);
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:s,"
        " s:o, s:b, s:b}",
        "bytes_per_token", (json_int_t)r->flags->bytes_per_token, "block_size",
        (json_int_t)r->block, "cache_blocks", (json_int_t)r->slots, "inflight",
        (json_int_t)r->flags->trace_inflight, "speed", r->flags->trace_speed, "trace_requests",
        (json_int_t)r->trace.count, "request_count", (json_int_t)res->requests, "requests_in_part",
        (json_int_t)res->in_part, "blocks_hit", (json_int_t)res->hit, "blocks_missed",
        (json_int_t)res->missed, "blocks_left_out", (json_int_t)res->left_out, "blocks_evicted",
        (json_int_t)res->evicted, "hit_rate", hit_rate(res), "bytes", (json_int_t)res->bytes,
        "duration_s", res->seconds, "goodput_bytes_per_s", rate(res), "goodput", rate(res) / unit,
        "report_unit", flags->report_unit, "completion_ms", completion_json(res), "interrupted",
        (int)res->interrupted, "failed", (int)(res->failed || res->corrupt));

    if (o && r->verify)
        json_object_set_new(o, "verified_bytes", json_integer((json_int_t)res->verified));
    if (o && r->verify)
        json_object_set_new(o, "corrupt", json_boolean(res->corrupt));
    return o;
}
