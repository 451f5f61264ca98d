/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c - what a lease costs its target: te_lease_grant() and te_revoke() of ranges of one region, `batch` of them at
 * a time, which nobody uses meanwhile.
 */
#include "micro.h"

static int64_t grant_all(te_engine *e, char *base, te_lease *leases, size_t n, size_t bytes)
{
    te_lease_key key;
    int64_t start = bench_now_ns();
    for (size_t i = 0; i < n; i++)
        check(te_lease_grant(e, base + i * bytes, bytes, TE_REMOTE_WRITE, 60000, &leases[i], &key),
              "te_lease_grant");
    return bench_now_ns() - start;
}

static int64_t revoke_all(te_engine *e, const te_lease *leases, size_t n)
{
    int64_t start = bench_now_ns();
    for (size_t i = 0; i < n; i++)
        check(te_revoke(e, leases[i]), "te_revoke");
    return bench_now_ns() - start;
}

void measure_lease(void)
{
    size_t n = or_default((size_t)batch, 4096), times = or_default((size_t)rounds, 50);
    size_t bytes = buffer / n;
    te_engine *e = engine_make();
    char *base = bench_buffer(buffer);
    te_lease *leases = calloc(n, sizeof *leases);
    int64_t *grants = calloc(times, sizeof *grants), *revokes = calloc(times, sizeof *revokes);
    if (leases == NULL || grants == NULL || revokes == NULL || bytes == 0)
        bench_die("no room for %zu leases", n);
    check(te_register(e, base, buffer, "*", TE_LOCAL_ONLY), "te_register");
    for (size_t i = 0; i < times; i++) {
        grants[i] = grant_all(e, base, leases, n, bytes);
        revokes[i] = revoke_all(e, leases, n);
    }
    bench_sort(grants, times);
    bench_sort(revokes, times);
    printf(json
               ? "{\"bench\": \"lease\", \"grant_ns\": %.1f, \"revoke_ns\": %.1f, \"count\": %zu}\n"
               : "lease: te_lease_grant %.0f ns, te_revoke %.0f ns (p50 of rounds of %zu)\n",
           bench_quantile(grants, times, 0.5) / (double)n,
           bench_quantile(revokes, times, 0.5) / (double)n, n);
    te_engine_destroy(e);
    munmap(base, buffer);
    free(leases);
    free(grants);
    free(revokes);
}
