/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delay_relay.c - a long cable between two network namespaces of this host: it holds back every IP
 * packet for a given time and changes nothing else, so that TCP sees a real round trip. (A proxy that
 * ends connections would hide it; the netem queue of Linux does the same, where the kernel has it.)
 *
 * Each namespace has a TUN device. What the kernel sends into one, this process reads, keeps in a ring
 * with the time it is due, and writes to the other one. --delay-us is what a round trip grows by: half
 * of it each way.
 *
 *   namespace A: tun --read--> ring A->B --write when due--> tun :namespace B
 *                tun <--write when due-- ring B->A <--read-- tun
 *
 * The devices must have been made with vnet_hdr (scripts/netlab.sh does it): a header in front of each
 * packet lets the kernel hand over up to 64 KiB of TCP at once, without checksums, as it does to a
 * network card. Else one thread could carry no more than a fraction of what the engine moves.
 *
 * One thread: it reads what is there, writes what is due, and sleeps in ppoll() until the next packet
 * is due or comes. A full ring is not read; then the device's own queue fills and drops, as a router's
 * does. It ends after --seconds, when its parent ends, or on SIGTERM, and prints what it carried and
 * how late packets were.
 */
#include "bench.h"

#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>

/* A packet of IP has 65,535 bytes at most; the header before it 10 or 12. */
enum { PACKET_MAX = 65535 + 64, READ_BURST = 64 };

static size_t ring_bytes = 64U << 20;
static int delay_us = 1000;
static double seconds = 60.0;
static const char *device = "te0";
static bool json;

static const struct bench_opt options[] = {
    BENCH_NET_OPTIONS,
    {"device", BENCH_TEXT, &device, "name of the TUN device in both namespaces (te0)"},
    {"delay-us", BENCH_INT, &delay_us, "microseconds that a round trip takes longer (1000)"},
    {"ring", BENCH_SIZE, &ring_bytes, "bytes of packets under way in each direction (64M)"},
    {"seconds", BENCH_SECONDS, &seconds, "end after so long (60)"},
    {"json", BENCH_FLAG, &json, "print one line of JSON at the end"},
};

static volatile sig_atomic_t stopped;

/* A packet in the ring; its bytes follow. Length 0: nothing more before the end of the ring. */
struct packet {
    int64_t due_ns;
    uint32_t length;
    uint32_t room; /* bytes in the ring, this header included */
};

/* One direction. The offsets only grow; their remainders are places in the ring. */
struct way {
    int from, to;
    char *ring;
    size_t head, tail; /* of the next packet to write, of the next to be read in */
    uint64_t packets, bytes, dropped;
    int64_t worst_late_ns;
};

static void on_term(int number)
{
    (void)number;
    stopped = 1;
}

/* ------------------------------------------------------------------------------------ devices */

/* Takes hold of the device in a side's namespace. The descriptor works from anywhere. */
static int attach(int side)
{
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    bench_enter(side);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        bench_die_errno("/dev/net/tun");
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &r) != 0)
        bench_die("TUN device %s: %s", device, strerror(errno));
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
        bench_die_errno("TUNSETOFFLOAD");
    return fd;
}

/* --------------------------------------------------------------------------------------- ring */

static struct packet *packet_at(const struct way *w, size_t offset)
{
    return (struct packet *)(void *)(w->ring + offset % ring_bytes);
}

/* Room for the longest packet at the tail, in one piece; NULL if the ring is too full. */
static struct packet *ring_room(struct way *w)
{
    size_t need = sizeof(struct packet) + PACKET_MAX, to_end = ring_bytes - w->tail % ring_bytes;
    if (to_end < need + sizeof(struct packet)) {
        if (w->tail + to_end + need > w->head + ring_bytes)
            return NULL;
        *packet_at(w, w->tail) = (struct packet){.room = (uint32_t)to_end};
        w->tail += to_end;
    }
    return w->tail + need > w->head + ring_bytes ? NULL : packet_at(w, w->tail);
}

/* The packet that is due next; NULL if the ring is empty. */
static struct packet *ring_first(struct way *w)
{
    if (w->head != w->tail && packet_at(w, w->head)->length == 0)
        w->head += packet_at(w, w->head)->room;
    return w->head == w->tail ? NULL : packet_at(w, w->head);
}

/* ------------------------------------------------------------------------------------- moving */

/* Takes in what the kernel has sent. */
static void take_in(struct way *w)
{
    for (int i = 0; i < READ_BURST; i++) {
        struct packet *p = ring_room(w);
        if (p == NULL)
            return;
        ssize_t n = read(w->from, p + 1, PACKET_MAX);
        if (n <= 0)
            return;
        p->due_ns = bench_now_ns() + (int64_t)delay_us * 500;
        p->length = (uint32_t)n;
        p->room = (uint32_t)((sizeof *p + (size_t)n + 15) & ~(size_t)15);
        w->tail += p->room;
    }
}

/* Hands over what is due; the time when the next one is, INT64_MAX if there is none. */
static int64_t hand_over(struct way *w)
{
    for (struct packet *p = ring_first(w); p != NULL; p = ring_first(w)) {
        int64_t late = bench_now_ns() - p->due_ns;
        if (late < 0)
            return p->due_ns;
        if (late > w->worst_late_ns)
            w->worst_late_ns = late;
        if (write(w->to, p + 1, p->length) == (ssize_t)p->length)
            w->packets++, w->bytes += p->length;
        else
            w->dropped++;
        w->head += p->room;
    }
    return INT64_MAX;
}

static void sleep_until(const struct way w[2], int64_t due_ns)
{
    struct pollfd fds[2];
    int64_t left = due_ns - bench_now_ns();
    left = left > 0 ? left : 0;
    struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    /* A ring that is full waits for its own time, not for more packets. */
    for (int i = 0; i < 2; i++)
        fds[i] = (struct pollfd){
            .fd = w[i].tail - w[i].head + 2 * (PACKET_MAX + sizeof(struct packet)) > ring_bytes
                      ? -1
                      : w[i].from,
            .events = POLLIN};
    if (ppoll(fds, 2, &t, NULL) < 0 && errno != EINTR)
        bench_die_errno("ppoll");
}

static void relay(struct way w[2])
{
    int64_t end = bench_deadline_ns(seconds);
    while (!stopped && bench_now_ns() < end) {
        int64_t next = end;
        for (int i = 0; i < 2; i++)
            take_in(&w[i]);
        for (int i = 0; i < 2; i++) {
            int64_t due = hand_over(&w[i]);
            next = due < next ? due : next;
        }
        sleep_until(w, next);
    }
}

static void report(const struct way w[2])
{
    int64_t late =
        w[0].worst_late_ns > w[1].worst_late_ns ? w[0].worst_late_ns : w[1].worst_late_ns;
    printf(json
               ? "{\"bench\": \"delay_relay\", \"packets\": %ju, \"bytes\": %ju, \"dropped\": %ju, "
                 "\"worst_late_us\": %.1f, \"delay_us\": %d}\n"
               : "%ju packets, %ju bytes, %ju dropped, at most %.1f us late (%d us a round trip)\n",
           (uintmax_t)(w[0].packets + w[1].packets), (uintmax_t)(w[0].bytes + w[1].bytes),
           (uintmax_t)(w[0].dropped + w[1].dropped), (double)late / 1e3, delay_us);
}

int main(int argc, char **argv)
{
    const char *about =
        "--netns A,B [option...]\n\nCarries IP packets between the TUN devices of two network "
        "namespaces, each a given time\nlater. scripts/netlab.sh makes both and starts this.";
    int at = bench_options(argc, argv, about, options, sizeof options / sizeof options[0]);
    if (at < argc)
        bench_usage_error("unexpected argument", argv[at]);
    if (bench_netns == NULL)
        bench_die("two namespaces, please: --netns A,B");
    if (ring_bytes < 16U * PACKET_MAX || ring_bytes % 16 != 0)
        bench_die("a ring of at least 1M and a multiple of 16, please");
    bench_guard((unsigned)seconds + 30, true);
    prctl(PR_SET_TIMERSLACK, 1UL);
    struct sigaction on_end = {.sa_handler = on_term};
    sigaction(SIGTERM, &on_end, NULL);
    int a = attach(0), b = attach(1);
    struct way w[2] = {{.from = a, .to = b, .ring = bench_buffer(ring_bytes)},
                       {.from = b, .to = a, .ring = bench_buffer(ring_bytes)}};
    puts("ready");
    fflush(stdout);
    relay(w);
    report(w);
    return 0;
}
