/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rail_pair.c - how fast a rail is, how much it may have on its way, and its pauses.
 *
 * Rate. In windows of TEI_RAIL_WINDOW_NS or more the bytes of a rail are held against the time during
 * which anything was on its way. That is never more than the rail can do, so a higher figure than
 * before is believed; a lower one only if slices have queued, for otherwise it tells of a caller
 * without work. A rail from which nothing comes while something is on its way is believed slower by
 * half in each window. Without traffic the figure goes back to that of the ports within a second.
 *
 * Speed. What completion times are predicted by is mostly the same. But rails that meet in one NIC
 * each get of it what share of the queue is theirs: by their rates any division of the work would look
 * right, and small differences would grow. There the speed falls to the rate only where slices take
 * longer than on the peer's other rails, and else rises slowly back to that of the ports.
 *
 * Window. A rail may have on its way what it carries in TEI_RAIL_FIRST_NS, doubled whenever it turns
 * out as fast as thought up to TEI_RAIL_FULL_NS, and back to the first when it does not: so what is
 * given to a rail before it shows to be slow is little, and does not hold up the end of a transfer.
 */
#include "rail/rail_pair.h"

#define LEAST_BPS     16e6 /* below it costs no longer fit */
#define SLOWEST       (1.0 / 64)
#define FASTEST       4.0
#define ENOUGH_BYTES  (512U << 10) /* a window with less is held open, */
#define LONGEST_NS    16000000     /* up to here */
#define FORGET_NS     500000000.0
#define WORKED_FACTOR 10
#define LATE          1.15 /* times what the others take */
#define CREEP         1.02

uint64_t tei_rail_cost_of(double bps)
{
    return (uint64_t)(1e9 * (double)(1U << TEI_RAIL_COST_SHIFT) / bps);
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double within_reason(const struct tei_rail *r, double bps)
{
    return clamp(bps, r->nominal * SLOWEST, r->nominal * FASTEST);
}

static void set_speed(struct tei_rail *r, double bps)
{
    r->speed = within_reason(r, bps);
    r->cost = tei_rail_cost_of(r->speed);
}

static void set_rate(struct tei_rail *r, double bps, uint64_t min_window)
{
    uint64_t window;

    r->rate = within_reason(r, bps);
    window = (uint64_t)(r->rate * (double)r->full_ns / 1e9);
    r->window = window > min_window ? window : min_window;
}

static void open_window(struct tei_rail *r, int64_t now)
{
    r->measured_ns = now;
    r->busy_since = now;
    r->busy_ns = 0;
    r->bytes = 0;
    r->depth_sum = 0;
    r->n_done = 0;
}

void tei_rail_set_nominal(struct tei_rail *r, uint64_t bps, uint64_t min_window)
{
    r->nominal = (double)bps < LEAST_BPS ? LEAST_BPS : (double)bps;
    r->full_ns = TEI_RAIL_FIRST_NS;
    set_rate(r, r->nominal, min_window);
    set_speed(r, r->nominal);
}

/* ---- The way of a slice -------------------------------------------------------------------------- */

void tei_rail_posted(struct tei_rail *r, uint64_t len, int64_t now)
{
    if (r->n_out == 0) {
        if (r->n_done == 0 && now - r->measured_ns > LONGEST_NS)
            open_window(r, now);
        r->busy_since = now;
        r->progress_ns = now;
    }
    r->outstanding += len;
    r->n_out++;
    r->given_ns = now;
    if (len > r->longest)
        r->longest = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
    if (r->state == TEI_RAIL_PROBATION)
        r->on_trial = true;
}

static bool passed(struct tei_rail *r, uint64_t len, int64_t now)
{
    r->n_trial++;
    r->trial_bytes += len > TEI_RAIL_TRIAL_BYTES ? TEI_RAIL_TRIAL_BYTES : (uint32_t)len;
    if (r->n_trial < TEI_RAIL_TRIALS && r->trial_bytes < TEI_RAIL_TRIAL_BYTES)
        return false;
    r->state = TEI_RAIL_ACTIVE;
    r->active_ns = now;
    return true;
}

bool tei_rail_done(struct tei_rail *r, uint64_t len, int64_t now, bool ok)
{
    bool was_trial = r->on_trial && r->state == TEI_RAIL_PROBATION;

    if (ok) {
        r->bytes += len;
        r->depth_sum += r->outstanding;
        r->n_done++;
        r->progress_ns = now;
        r->ok_ns = now;
    }
    r->outstanding -= len;
    r->n_out--;
    if (r->n_out > 0)
        return false;
    r->busy_ns += (uint64_t)(now - r->busy_since);
    if (!was_trial || !ok)
        return false;
    r->on_trial = false;
    return passed(r, len, now);
}

/* ---- The rate ------------------------------------------------------------------------------------ */

/* Nothing has come: the rail is no faster than its longest slice in all that time. */
static void measure_silence(struct tei_rail *r, uint64_t min_window, int64_t now)
{
    int64_t silent = now - r->progress_ns;
    double bound;

    if (silent < TEI_RAIL_WINDOW_NS)
        return;
    bound = (double)r->longest * 1e9 / (double)silent;
    r->full_ns = TEI_RAIL_FIRST_NS;
    if (bound < r->rate)
        set_rate(r, bound > r->rate / 2 ? bound : r->rate / 2, min_window);
    if (bound < r->speed)
        set_speed(r, bound > r->speed / 2 ? bound : r->speed / 2);
}

/* How far a figure moves to one measured in so long. */
static double step(double from, double to, double busy_ns)
{
    return from + (to - from) * busy_ns / (busy_ns + TEI_RAIL_WINDOW_NS);
}

static bool has_queued(const struct tei_rail *r)
{
    return r->depth * 1e9 >= r->sample * TEI_RAIL_QUEUED_NS;
}

static void measure_traffic(struct tei_rail *r, uint64_t min_window, int64_t now)
{
    r->sample = (double)r->bytes * 1e9 / (double)r->busy_ns;
    r->depth = (double)r->depth_sum / r->n_done;
    r->sampled_ns = now;
    r->sample_busy = (double)r->busy_ns;
    if (r->sample < r->rate / 2)
        r->full_ns = TEI_RAIL_FIRST_NS;
    else if (r->full_ns < TEI_RAIL_FULL_NS)
        r->full_ns *= 2;
    if (r->sample > r->rate || has_queued(r))
        set_rate(r, step(r->rate, r->sample, r->sample_busy), min_window);
}

bool tei_rail_is_known(const struct tei_rail *r, int64_t now)
{
    return r->sample > 0 && now - r->sampled_ns <= 2 * LONGEST_NS;
}

void tei_rail_settle(struct tei_rail *r, double others_s)
{
    double own_s = r->depth / r->sample;

    if (r->sample > r->speed || (has_queued(r) && own_s > others_s * LATE))
        set_speed(r, step(r->speed, r->sample, r->sample_busy));
    else if (others_s > 0 && r->speed < r->nominal)
        set_speed(r, r->speed * CREEP > r->nominal ? r->nominal : r->speed * CREEP);
}

/* In time per byte, so that a very slow rail is not soon taken for a middling one. */
static double mix(double from, double to, double share)
{
    return 1 / ((1 - share) / from + share / to);
}

static bool is_near(double a, double b)
{
    return a - b < b / 1024 && b - a < b / 1024;
}

/* Goes back to the rate of the ports. False once there is nothing left to forget. */
static bool forget(struct tei_rail *r, uint64_t min_window, int64_t idle_ns)
{
    double share = clamp((double)idle_ns / FORGET_NS, 0, 1);

    if (is_near(r->rate, r->nominal) && is_near(r->speed, r->nominal) &&
        r->full_ns == TEI_RAIL_FIRST_NS)
        return false;
    r->full_ns = TEI_RAIL_FIRST_NS;
    set_rate(r, mix(r->rate, r->nominal, share), min_window);
    set_speed(r, mix(r->speed, r->nominal, share));
    return true;
}

bool tei_rail_measure(struct tei_rail *r, uint64_t min_window, int64_t now)
{
    int64_t age = now - r->measured_ns;

    if (age < TEI_RAIL_WINDOW_NS)
        return true;
    if (r->n_out > 0) {
        r->busy_ns += (uint64_t)(now - r->busy_since);
        r->busy_since = now;
    }
    if (r->n_done == 0 && r->n_out > 0) {
        measure_silence(r, min_window, now);
        return true;
    }
    if (r->n_done == 0) {
        bool more = forget(r, min_window, age);

        open_window(r, now);
        return more;
    }
    if (r->bytes < ENOUGH_BYTES && age < LONGEST_NS)
        return true;
    if (r->busy_ns > 0)
        measure_traffic(r, min_window, now);
    open_window(r, now);
    return true;
}

/* ---- Faults -------------------------------------------------------------------------------------- */

static void stop_until(struct tei_rail *r, int64_t until)
{
    r->until_ns = until;
    r->state = TEI_RAIL_PAUSED;
    r->on_trial = false;
}

bool tei_rail_pause(struct tei_rail *r, int64_t first_ns, int64_t max_ns, int64_t now)
{
    int64_t pause = first_ns;

    r->n_faults++;
    r->failed_ns = now;
    if (r->state == TEI_RAIL_PAUSED || (r->state == TEI_RAIL_PROBATION && !r->on_trial))
        return false;
    if (r->pause_ns > 0 &&
        (r->state == TEI_RAIL_PROBATION || (now - r->active_ns) / WORKED_FACTOR < r->pause_ns))
        pause = r->pause_ns > max_ns / 2 ? max_ns : 2 * r->pause_ns;
    r->pause_ns = pause > max_ns ? max_ns : pause;
    stop_until(r, now + r->pause_ns);
    return true;
}

void tei_rail_hold(struct tei_rail *r, int64_t pause_ns, int64_t now)
{
    if (r->state == TEI_RAIL_PAUSED && r->until_ns >= now + pause_ns)
        return;
    if (r->pause_ns < pause_ns)
        r->pause_ns = pause_ns;
    stop_until(r, now + pause_ns);
}

void tei_rail_resume(struct tei_rail *r)
{
    r->state = TEI_RAIL_PROBATION;
    r->on_trial = false;
    r->n_trial = 0;
    r->trial_bytes = 0;
}

void tei_rail_forgive(struct tei_rail *r)
{
    r->pause_ns = 0;
    if (r->state == TEI_RAIL_PAUSED)
        tei_rail_resume(r);
}
