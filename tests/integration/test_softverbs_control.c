/* SPDX-License-Identifier: Apache-2.0 */
/* te-test: parallel */
/*
 * What softverbs can be told to do: ports down, failing and vanishing completions, stalls, dead
 * devices, broken CQs and QPs, changed addresses, refused verbs, unreachable pairs; and the events,
 * channels, pacing and counters that go with it.
 */
#include "patience.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (4u << 20)
#define GID0 "\"gids\": [\"fe80::1\", \"::ffff:10.0.0.1\"]"

#include "fabric/softverbs/rig/pair.h"

#define PATIENT_TIMEOUT 18 /* 1.1 s, as often as PATIENT_RETRIES says: no command takes so long */
#define PATIENT_RETRIES 7

static int begin(void **state)
{
    (void)state;
    connect_both("[{\"name\": \"sv0\", " GID0 "}, {\"name\": \"sv1\"}]", NULL);
    return 0;
}

static int write_one(uint64_t id)
{
    return rig_post(&a, IBV_WR_RDMA_WRITE, id, 0, 100, &to_b, 0);
}

static void reconnect(void)
{
    assert_int_equal(rig_to(&a, IBV_QPS_RESET), 0);
    assert_int_equal(rig_to(&b, IBV_QPS_RESET), 0);
    rig_connect_both(&a, &b);
}

static void read_line(const char *path, char *out, size_t size)
{
    char full[256];
    FILE *in;

    snprintf(full, sizeof(full), "%s/all/sys/class/infiniband/%s", rig_dir(), path);
    in = fopen(full, "re");
    assert_non_null(in);
    assert_non_null(fgets(out, (int)size, in));
    fclose(in);
    out[strcspn(out, "\n")] = '\0';
}

/* ------------------------------------------------------------------------------------------- ports */

static enum ibv_port_state port_state(struct ibv_context *ctx)
{
    struct ibv_port_attr attr;

    assert_int_equal(ibv_query_port(ctx, 1, &attr), 0);
    return attr.state;
}

static void port_down_silent(void **state)
{
    char text[64];

    (void)state;
    rig_ctl("port sv0 down");
    rig_event(a.ctx, IBV_EVENT_PORT_ERR);
    assert_int_equal(port_state(a.ctx), IBV_PORT_DOWN);
    read_line("sv0/ports/1/state", text, sizeof(text));
    assert_string_equal(text, "1: DOWN");
    assert_int_equal(write_one(1), 0);
    rig_silence(a.send_cq, 200); /* three times as long as the retries */
    rig_ctl("port sv0 up");
    rig_event(a.ctx, IBV_EVENT_PORT_ACTIVE);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    read_line("sv0/ports/1/state", text, sizeof(text));
    assert_string_equal(text, "4: ACTIVE");
    rig_no_event(b.ctx);
}

static void port_down_retries(void **state)
{
    (void)state;
    rig_ctl("port sv0 down retry");
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(rig_differs(b.buf, SIZE, 2), -1);
    rig_ctl("port sv0 up");
}

static void port_down_flush(void **state)
{
    (void)state;
    rig_ctl("port sv0 down never");
    assert_int_equal(write_one(1), 0);
    rig_silence(a.send_cq, 20);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
    rig_expect(a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
}

static void peers_port_down(void **state)
{
    (void)state;
    rig_ctl("port sv1 down");
    rig_event(b.ctx, IBV_EVENT_PORT_ERR);
    a.o.timeout = PATIENT_TIMEOUT, a.o.retry_cnt = PATIENT_RETRIES;
    reconnect();
    assert_int_equal(write_one(1), 0);
    rig_silence(a.send_cq, 30);
    rig_ctl("port sv1 up"); /* before the retries are used up: one of them finds it */
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    a.o = rig_default;
    reconnect();
    rig_ctl("port sv1 down");
    assert_int_equal(write_one(2), 0);
    rig_expect(a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    rig_no_event(a.ctx);
}

/* ------------------------------------------------------------------------------------- work requests */

static void failing(void **state)
{
    static const struct {
        const char *name;
        enum ibv_wc_status status;
    } kinds[] = {{"RETRY_EXC", IBV_WC_RETRY_EXC_ERR},
                 {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
                 {"IBV_WC_GENERAL_ERR", IBV_WC_GENERAL_ERR},
                 {"FATAL", IBV_WC_FATAL_ERR},
                 {"4", IBV_WC_LOC_PROT_ERR}};

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        rig_ctl("fail sv0 nth=3 status=%s", kinds[i].name);
        memset(b.buf, 0, 100);
        for (unsigned k = 1; k <= 4; k++)
            assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, k, k * 10, 10, &to_b, k * 10), 0);
        rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
        rig_expect(a.send_cq, 2, IBV_WC_SUCCESS);
        rig_expect(a.send_cq, 3, kinds[i].status);
        rig_expect(a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
        assert_memory_equal(b.buf + 10, a.buf + 10, 20);
        for (unsigned k = 30; k < 50; k++)
            assert_int_equal(b.buf[k], 0);
        reconnect();
        assert_int_equal(write_one(9), 0);
        rig_expect(a.send_cq, 9, IBV_WC_SUCCESS);
    }
    rig_ctl("fail sv0 count=2");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(write_one(i), 0);
        rig_expect(a.send_cq, i, i < 2 ? IBV_WC_GENERAL_ERR : IBV_WC_SUCCESS);
        reconnect();
    }
}

/* The answer was lost on the way back: the bytes are there. */
static void failing_late(void **state)
{
    (void)state;
    rig_ctl("fail sv0 status=RETRY_EXC moved=1");
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    assert_memory_equal(b.buf, a.buf, 100);
}

static void dropping(void **state)
{
    (void)state;
    rig_ctl("drop sv0");
    assert_int_equal(write_one(1), 0);
    assert_int_equal(write_one(2), 0);
    WAIT_FOR(rig_stat("sv0", "drops") == 0); /* else the QP would flush what is to be dropped */
    rig_silence(a.send_cq, 100);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
    rig_expect(a.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
    rig_expect(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(rig_differs(b.buf, SIZE, 2), -1);
    reconnect();
    assert_int_equal(write_one(3), 0);
    rig_expect(a.send_cq, 3, IBV_WC_SUCCESS);
}

static void stalling(void **state)
{
    int64_t start = rig_now_ms();

    (void)state;
    rig_ctl("stall sv0 100");
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    assert_true(rig_now_ms() - start >= 99);
    rig_ctl("stall sv1 60000"); /* the peer's: nobody answers */
    assert_int_equal(write_one(2), 0);
    rig_expect(a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    rig_ctl("clear sv1");
    reconnect();
    assert_int_equal(write_one(3), 0);
    rig_expect(a.send_cq, 3, IBV_WC_SUCCESS);
}

static void blocking_a_pair(void **state)
{
    (void)state;
    rig_ctl("block sv1 sv0");
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    rig_ctl("unblock sv0 sv1");
    reconnect();
    assert_int_equal(write_one(2), 0);
    rig_expect(a.send_cq, 2, IBV_WC_SUCCESS);
}

/* Requests of the one are lost, and the other's are carried out without their sender hearing of it. */
static void losing_what_one_sends(void **state)
{
    (void)state;
    rig_ctl("block sv0 sv1 oneway");
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    untouched();
    reconnect();
    assert_int_equal(rig_post(&b, IBV_WR_RDMA_READ, 2, 0, 100, &to_a, 0), 0);
    rig_expect(b.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    untouched();
    reconnect();
    assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 3, 0, 100, &to_a, 0), 0);
    rig_expect(b.send_cq, 3, IBV_WC_RETRY_EXC_ERR);
    assert_memory_equal(a.buf, b.buf, 100);
}

/* What was carried out is not carried out again when it is sent again. */
static void answering_what_was_done(void **state)
{
    (void)state;
    a.o.timeout = 0; /* for ever */
    reconnect();
    rig_ctl("block sv1 sv0 oneway");
    assert_int_equal(rig_recv(&b, 5, 1000, 100), 0);
    assert_int_equal(rig_recv(&b, 6, 1000, 100), 0);
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 100, &to_b, 0), 0);
    rig_expect(b.recv_cq, 5, IBV_WC_SUCCESS);
    assert_memory_equal(a.buf, b.buf, 100);
    rig_fill(b.buf, SIZE, 2);
    rig_silence(a.send_cq, 30);
    rig_ctl("unblock sv1 sv0 oneway");
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    untouched();
    assert_int_equal(write_one(2), 0); /* both count as before */
    rig_expect(a.send_cq, 2, IBV_WC_SUCCESS);
    assert_memory_equal(a.buf, b.buf, 100);
    rig_silence(b.recv_cq, 0);
}

/* A target that refuses breaks, and who has asked hears nothing of it. */
static void refusing_unheard(void **state)
{
    (void)state;
    rig_ctl("block sv1 sv0 oneway");
    assert_int_equal(rig_post(&a, IBV_WR_RDMA_READ, 1, 0, 100, &to_b, SIZE), 0);
    rig_event(b.ctx, IBV_EVENT_QP_ACCESS_ERR);
    rig_expect(a.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
    untouched();
}

/* ---------------------------------------------------------------------------------- devices, objects */

static void dead_device(void **state)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 10, &to_b, 0), *bad;
    struct ibv_port_attr port;
    struct ibv_context *again;

    (void)state;
    rig_ctl("stall sv0 60000"); /* so that the request is under way when the device dies */
    assert_int_equal(write_one(1), 0);
    rig_ctl("kill sv0");
    rig_event(a.ctx, IBV_EVENT_DEVICE_FATAL);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EIO);
    assert_int_equal(rig_recv(&a, 1, 0, 1), EIO);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), EIO);
    assert_int_equal(ibv_query_port(a.ctx, 1, &port), EIO);
    assert_int_equal(ibv_req_notify_cq(a.recv_cq, 0), EIO);
    assert_null(ibv_reg_mr(a.pd, a.buf, 10, 0));
    assert_int_equal(errno, EIO);
    assert_null(ibv_create_cq(a.ctx, 1, NULL, NULL, 0));
    assert_null(ibv_alloc_pd(a.ctx));
    rig_silence(a.send_cq, 60); /* nothing completes any more, not even flushed */
    assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 2, 0, 10, &to_a, 0), 0);
    rig_expect(b.send_cq, 2, IBV_WC_RETRY_EXC_ERR);

    rig_ctl("revive sv0"); /* for those who open it anew */
    assert_int_equal(ibv_query_port(a.ctx, 1, &port), EIO);
    again = rig_context("sv0");
    assert_int_equal(ibv_query_port(again, 1, &port), 0);
    rig_ctl("port sv0 down");
    rig_event(again, IBV_EVENT_PORT_ERR);
    rig_no_event(a.ctx);
    assert_int_equal(ibv_close_device(again), 0);
}

static void broken_cqs(void **state)
{
    (void)state;
    rig_ctl("cq_err sv0");
    rig_event(a.ctx, IBV_EVENT_CQ_ERR);
    rig_event(a.ctx, IBV_EVENT_CQ_ERR); /* two CQs */
    assert_int_equal(rig_post(&b, IBV_WR_RDMA_WRITE, 2, 0, 10, &to_a, 0), 0);
    rig_expect(b.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(rig_state(&a), IBV_QPS_ERR);
    rig_no_event(b.ctx);
}

static void broken_qp(void **state)
{
    struct rig_end c;

    (void)state;
    rig_open(&c, "sv0", 4096, NULL);
    assert_int_equal(rig_recv(&a, 5, 0, 1), 0);
    rig_ctl("qp_fatal sv0 %u", a.qp->qp_num);
    rig_event(a.ctx, IBV_EVENT_QP_FATAL);
    rig_expect(a.recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(rig_state(&a), IBV_QPS_ERR);
    assert_int_equal(rig_state(&c), IBV_QPS_RESET);
    rig_no_event(c.ctx);
    rig_close(&c);
}

static void changed_gid(void **state)
{
    union ibv_gid gid;
    char text[64];

    (void)state;
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    rig_ctl("gid_change sv0 0 fe80::77");
    rig_event(a.ctx, IBV_EVENT_GID_CHANGE);
    assert_int_equal(ibv_query_gid(a.ctx, 1, 0, &gid), 0);
    assert_int_equal(gid.raw[15], 0x77);
    read_line("sv0/ports/1/gids/0", text, sizeof(text));
    assert_string_equal(text, "fe80:0000:0000:0000:0000:0000:0000:0077");
    assert_int_equal(write_one(2), 0); /* answers would go to the old one */
    rig_expect(a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    to_a = rig_addr(&a);
    reconnect();
    assert_int_equal(write_one(3), 0);
    rig_expect(a.send_cq, 3, IBV_WC_SUCCESS);
}

static void lids(void **state)
{
    (void)state;
    connect_both("[{\"name\": \"sv0\", \"link_layer\": \"InfiniBand\", \"lid\": 7},"
                 " {\"name\": \"sv1\", \"link_layer\": \"InfiniBand\", \"lid\": 9}]",
                 NULL);
    assert_int_equal(to_a.lid, 7);
    assert_false(to_a.ethernet);
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    rig_ctl("lid sv1 12");
    rig_event(b.ctx, IBV_EVENT_LID_CHANGE);
    assert_int_equal(write_one(2), 0);
    rig_expect(a.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
    end(NULL);
}

static void denied_verbs(void **state)
{
    struct ibv_mr *mr[3];
    struct ibv_device **list;

    (void)state;
    rig_ctl("deny sv0 reg_mr after=2");
    for (unsigned i = 0; i < 3; i++)
        mr[i] = ibv_reg_mr(a.pd, a.buf, 10, 0);
    assert_non_null(mr[1]);
    assert_null(mr[2]);
    assert_int_equal(errno, ENOMEM);
    rig_ctl("allow sv0 reg_mr");
    mr[2] = ibv_reg_mr(a.pd, a.buf, 10, 0);
    assert_int_equal(ibv_dereg_mr(mr[0]) | ibv_dereg_mr(mr[1]) | ibv_dereg_mr(mr[2]), 0);
    rig_ctl("deny sv0 modify_qp errno=%d", EINVAL);
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), EINVAL);
    rig_ctl("deny sv0 create_cq errno=%d", EAGAIN);
    assert_null(ibv_create_cq(a.ctx, 1, NULL, NULL, 0));
    assert_int_equal(errno, EAGAIN);
    rig_ctl("deny sv0 open errno=%d", EACCES);
    list = ibv_get_device_list(NULL);
    assert_null(ibv_open_device(list[0]));
    assert_int_equal(errno, EACCES);
    ibv_free_device_list(list);
    rig_ctl("clear sv0");
    assert_int_equal(rig_to(&a, IBV_QPS_ERR), 0);
}

static void bad_commands(void **state)
{
    static const char *const lines[] = {"",
                                        "nonsense sv0",
                                        "port",
                                        "port sv0",
                                        "kill nic9",
                                        "fail sv0 status=NO",
                                        "deny sv0 dance",
                                        "block sv0 nic9",
                                        "gid_change sv0 99 ::1"};
    char reply[256];

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_not_equal(softverbs_control(NULL, lines[i], reply, sizeof(reply)), 0);
        assert_int_not_equal(reply[0], 0);
    }
    assert_int_not_equal(softverbs_control("/nowhere.json", "stats", NULL, 0), 0);
}

/* ------------------------------------------------------------------------------------------- channels */

static bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

static void send_to_b(uint64_t id, unsigned flags)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_SEND, &sge, 0, 10, NULL, 0), *bad;

    wr.wr_id = id;
    wr.send_flags |= flags;
    assert_int_equal(rig_recv(&b, id, 0, 10), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    rig_expect(a.send_cq, id, IBV_WC_SUCCESS);
}

static void channel_events(void **state)
{
    struct ibv_cq *cq;
    void *context;

    (void)state;
    send_to_b(1, 0);
    assert_false(readable(b.channel->fd, 30)); /* not asked for */
    assert_int_equal(ibv_req_notify_cq(b.recv_cq, 0), 0);
    assert_false(readable(b.channel->fd, 30)); /* what was there before does not count */
    send_to_b(2, 0);
    send_to_b(3, 0);
    assert_true(readable(b.channel->fd, PATIENCE_MS));
    assert_int_equal(ibv_get_cq_event(b.channel, &cq, &context), 0);
    assert_ptr_equal(cq, b.recv_cq);
    assert_ptr_equal(context, &b);
    assert_false(readable(b.channel->fd, 30)); /* one event for one request to notify */

    assert_int_equal(ibv_req_notify_cq(b.recv_cq, 1), 0);
    send_to_b(4, 0);
    assert_false(readable(b.channel->fd, 30));
    send_to_b(5, IBV_SEND_SOLICITED);
    assert_true(readable(b.channel->fd, PATIENCE_MS));
    assert_int_equal(ibv_get_cq_event(b.channel, &cq, &context), 0);
    for (unsigned i = 1; i <= 5; i++)
        rig_expect(b.recv_cq, i, IBV_WC_SUCCESS);
    ibv_ack_cq_events(b.recv_cq, 2);

    assert_int_equal(ibv_req_notify_cq(b.recv_cq, 1), 0); /* an error counts as solicited */
    assert_int_equal(rig_recv(&b, 6, 0, 10), 0);
    assert_int_equal(rig_to(&b, IBV_QPS_ERR), 0);
    assert_true(readable(b.channel->fd, PATIENCE_MS));
    fcntl(b.channel->fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(ibv_get_cq_event(b.channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    assert_int_equal(ibv_get_cq_event(b.channel, &cq, &context), -1);
    assert_int_equal(errno, EAGAIN);
    fcntl(a.ctx->async_fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(ibv_get_async_event(a.ctx, &(struct ibv_async_event){0}), -1);
    assert_int_equal(errno, EAGAIN);
}

static atomic_bool acknowledged; /* or just about to be */

static void *ack_later(void *arg)
{
    usleep(100000);
    atomic_store(&acknowledged, true);
    ibv_ack_async_event(arg);
    return NULL;
}

/* Destroying waits until the events that the program got are acknowledged; others go with it. */
static void destroy_waits(void **state)
{
    struct ibv_async_event event;
    pthread_t t;

    (void)state;
    rig_ctl("qp_fatal sv0");
    assert_int_equal(ibv_get_async_event(a.ctx, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_QP_FATAL);
    assert_ptr_equal(event.element.qp, a.qp);
    atomic_store(&acknowledged, false);
    pthread_create(&t, NULL, ack_later, &event);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = NULL;
    assert_true(atomic_load(&acknowledged));
    pthread_join(t, NULL);
    rig_ctl("qp_fatal sv1");
    usleep(20000);
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    rig_no_event(b.ctx);
}

/* --------------------------------------------------------------------------------- pacing, counters */

static int64_t time_for(unsigned n, uint32_t length, enum ibv_wr_opcode op)
{
    int64_t start = rig_now_ms();

    for (unsigned i = 0; i < n; i++)
        assert_int_equal(rig_post(&a, op, i, 0, length, &to_b, 0), 0);
    for (unsigned i = 0; i < n; i++)
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
    return rig_now_ms() - start;
}

/* How long each direction of a NIC was taken, by its rate: what a transfer lasts at least, and on a machine that
 * has nothing else to do, at most. */
static void expect_taken(const char *nic, long tx_us, long rx_us)
{
    assert_int_equal(rig_stat(nic, "tx_us"), tx_us);
    assert_int_equal(rig_stat(nic, "rx_us"), rx_us);
}

static void paced(void **state)
{
    enum { US = 209715 }; /* 4 MiB at 20 MB/s */

    (void)state;
    connect_both("[{\"name\": \"sv0\", \"gbps\": 0.16}, {\"name\": \"sv1\"}]", NULL);
    assert_true(time_for(16, SIZE / 16, IBV_WR_RDMA_WRITE) >= US / 1000);
    expect_taken("sv0", US, 0);
    assert_true(time_for(1, SIZE, IBV_WR_RDMA_READ) >= US / 1000);
    expect_taken("sv0", US, US);
    rig_ctl("slow sv0 0");
    time_for(1, SIZE, IBV_WR_RDMA_READ);
    expect_taken("sv0", US, US);
    rig_ctl("slow sv1 0.16"); /* the slower of the two counts */
    assert_true(time_for(1, SIZE, IBV_WR_RDMA_WRITE) >= US / 1000);
    expect_taken("sv0", US, US);
    expect_taken("sv1", 0, US);
    end(NULL);
}

/* Ten messages of 512 KiB on each of two QPs of sv0; the second ones writes, or reads. */
static int64_t time_for_two(struct rig_end *c, const struct rig_addr *to_d, enum ibv_wr_opcode op)
{
    int64_t start = rig_now_ms();

    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(rig_post(&a, IBV_WR_RDMA_WRITE, i, 0, 1u << 19, &to_b, 0), 0);
        assert_int_equal(rig_post(c, op, i, 0, 1u << 19, to_d, 0), 0);
    }
    for (unsigned i = 0; i < 10; i++) {
        rig_expect(a.send_cq, i, IBV_WC_SUCCESS);
        rig_expect(c->send_cq, i, IBV_WC_SUCCESS);
    }
    return rig_now_ms() - start;
}

/* Two QPs of a NIC share it; each direction has its own rate. */
static void shared_wire(void **state)
{
    enum { US = 104857 }; /* 5 MiB at 50 MB/s */
    struct rig_end c, d;
    struct rig_addr to_d;

    (void)state;
    connect_both("[{\"name\": \"sv0\", \"gbps\": 0.4}, {\"name\": \"sv1\"}]", NULL);
    rig_open(&c, "sv0", SIZE, NULL);
    rig_open(&d, "sv1", SIZE, NULL);
    to_d = rig_addr(&d);
    rig_connect_both(&c, &d);
    assert_true(time_for_two(&c, &to_d, IBV_WR_RDMA_WRITE) >= 2 * US / 1000);
    expect_taken("sv0", 2 * US + 1, 0); /* 209715.2 us */
    assert_true(time_for_two(&c, &to_d, IBV_WR_RDMA_READ) >= US / 1000);
    expect_taken("sv0", 3 * US + 1, US); /* half each way */
    rig_close(&c);
    rig_close(&d);
    end(NULL);
}

static void counters(void **state)
{
    long qps = rig_stat("sv0", "qps"), mrs = rig_stat("sv0", "mrs");

    (void)state;
    time_for(10, 1000, IBV_WR_RDMA_READ);
    assert_int_equal(rig_stat("sv0", "bytes"), 10000);
    assert_int_equal(rig_stat("sv0", "wrs"), 10);
    assert_int_equal(rig_stat("sv0", "doorbells"), 10);
    assert_int_equal(rig_stat("sv0", "completions"), 10);
    assert_int_equal(rig_stat("sv1", "wrs"), 0);
    assert_int_equal(qps, 1);
    assert_int_equal(mrs, 1);
    assert_int_equal(rig_stat("sv0", "cqs"), 2);
}

/* An instant NIC: all is said to be done when post returns, and nothing was moved. */
static void instant(void **state)
{
    enum { ROUNDS = 20000, BATCH = 16 };
    struct ibv_send_wr wr[BATCH], *bad;
    struct ibv_sge sge[BATCH];
    struct ibv_wc wc[BATCH];
    struct timespec t[2];
    double ns;

    (void)state;
    connect_both("[{\"name\": \"sv0\", \"instant\": true}, {\"name\": \"sv1\"}]", NULL);
    for (unsigned i = 0; i < BATCH; i++) {
        wr[i] = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge[i], i * 4096, 4096, &to_b, 0);
        wr[i].wr_id = i;
        wr[i].next = i + 1 < BATCH ? &wr[i + 1] : NULL;
    }
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_int_equal(ibv_post_send(a.qp, wr, &bad), 0);
        assert_int_equal(ibv_poll_cq(a.send_cq, BATCH, wc), BATCH);
    }
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    ns = (double)(t[1].tv_sec - t[0].tv_sec) * 1e9 + (double)(t[1].tv_nsec - t[0].tv_nsec);
    print_message("instant: %.1f ns for a work request, in batches of %d\n",
                  ns / (double)(ROUNDS * BATCH), BATCH);
    for (unsigned i = 0; i < BATCH; i++) {
        assert_int_equal(wc[i].wr_id, i);
        assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
        assert_int_equal(wc[i].opcode, IBV_WC_RDMA_WRITE);
        assert_int_equal(wc[i].qp_num, a.qp->qp_num);
    }
    assert_int_equal(rig_differs(b.buf, SIZE, 2), -1);
    assert_int_equal(rig_stat("sv0", "completions"), ROUNDS * BATCH);
    rig_ctl("fail sv0 nth=2"); /* faults work even so */
    assert_int_equal(write_one(1), 0);
    assert_int_equal(write_one(2), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    rig_expect(a.send_cq, 2, IBV_WC_GENERAL_ERR);
    end(NULL);
}

/* ----------------------------------------------------------------------------------- devices and hosts */

static unsigned count_devices(void)
{
    struct ibv_device **list;
    int n = -1;

    list = ibv_get_device_list(&n);
    assert_non_null(list);
    assert_null(list[n]);
    ibv_free_device_list(list);
    return (unsigned)n;
}

static void hosts(void **state)
{
    struct ibv_context *ctx;
    struct ibv_gid_entry entries[4];
    char text[512];

    (void)state;
    unsetenv("SOFTVERBS");
    assert_int_equal(count_devices(), 0);
    rig_fabric("[{\"name\": \"sv0\", \"host\": \"a\", " GID0 ", \"gid_types\": [\"RoCE v1\"]},"
               " {\"name\": \"sv0\", \"host\": \"b\", \"numa\": 1, \"pci\": \"0000:42:00.1\"},"
               " {\"name\": \"sv1\", \"host\": \"b\"}]");
    assert_int_equal(count_devices(), 3);
    setenv("SOFTVERBS_HOST", "b", 1);
    assert_int_equal(count_devices(), 2);
    ctx = rig_context("sv0");
    snprintf(text, sizeof(text), "%s/b/sys/class/infiniband/sv0", rig_dir());
    assert_string_equal(ctx->device->ibdev_path, text);
    snprintf(text, sizeof(text), "%s/device/numa_node", ctx->device->ibdev_path);
    assert_int_equal(access(text, R_OK), 0);
    snprintf(text, sizeof(text), "%s/ibdev", ctx->device->dev_path);
    assert_int_equal(access(text, R_OK), 0);
    rig_ctl("port a/sv0 down"); /* the other host's */
    rig_no_event(ctx);
    rig_ctl("port b/sv0 down");
    rig_event(ctx, IBV_EVENT_PORT_ERR);
    assert_int_equal(ibv_close_device(ctx), 0);
    setenv("SOFTVERBS_HOST", "a", 1);
    ctx = rig_context("sv0");
    assert_int_equal(ibv_query_gid_table(ctx, entries, 4, 0), 2);
    assert_int_equal(entries[0].gid_type, IBV_GID_TYPE_ROCE_V1);
    assert_int_equal(entries[1].gid_type, IBV_GID_TYPE_ROCE_V2);
    assert_int_equal(entries[1].gid.raw[15], 1);
    assert_int_equal(ibv_query_gid_ex(ctx, 1, 2, &entries[0], 0), ENODATA);
    assert_int_equal(ibv_query_gid_ex(ctx, 1, 99, &entries[0], 0), EINVAL);
    assert_int_equal(ibv_close_device(ctx), 0);
    setenv("SOFTVERBS_HOST", "nobody", 1);
    assert_int_equal(count_devices(), 0);
    unsetenv("SOFTVERBS_HOST");
    rig_fabric_end();
}

/* A forked child has nothing of it, and may open the fabric for itself. */
static void in_a_child(void **state)
{
    struct ibv_context *ctx;
    struct ibv_sge sge;
    struct ibv_send_wr wr = rig_wr(&a, IBV_WR_RDMA_WRITE, &sge, 0, 10, &to_b, 0), *bad;
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    if (pid == 0) {
        if (ibv_post_send(a.qp, &wr, &bad) != EIO || rig_to(&a, IBV_QPS_ERR) != EIO ||
            ibv_reg_mr(a.pd, a.buf, 10, 0))
            _exit(1);
        ibv_destroy_qp(a.qp);
        ibv_dereg_mr(a.mr);
        ctx = RIG_CHILD_MAY_OPEN ? rig_context("sv1") : NULL;
        _exit(ctx && ibv_close_device(ctx) ? 2 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(write_one(1), 0);
    rig_expect(a.send_cq, 1, IBV_WC_SUCCESS);
    assert_int_equal(rig_stat("sv0", "qps"), 1);
}

int main(void)
{
#define CONNECTED(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CONNECTED(port_down_silent),
        CONNECTED(port_down_retries),
        CONNECTED(port_down_flush),
        CONNECTED(peers_port_down),
        CONNECTED(failing),
        CONNECTED(failing_late),
        CONNECTED(dropping),
        CONNECTED(stalling),
        CONNECTED(blocking_a_pair),
        CONNECTED(losing_what_one_sends),
        CONNECTED(answering_what_was_done),
        CONNECTED(refusing_unheard),
        CONNECTED(dead_device),
        CONNECTED(broken_cqs),
        CONNECTED(broken_qp),
        CONNECTED(changed_gid),
        cmocka_unit_test(lids),
        CONNECTED(denied_verbs),
        CONNECTED(bad_commands),
        CONNECTED(channel_events),
        CONNECTED(destroy_waits),
        cmocka_unit_test(paced),
        cmocka_unit_test(shared_wire),
        CONNECTED(counters),
        cmocka_unit_test(instant),
        cmocka_unit_test(hosts),
        CONNECTED(in_a_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
