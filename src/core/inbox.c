/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.c - messages that have come, until they are taken. */
#include "core/inbox.h"
#include "base/source.h"
#include "core/core.h"

#include <stdlib.h>

#define INBOX_MAX       65536
#define INBOX_BYTES_MAX ((size_t)64 << 20)

/* An address that messages in the inbox came from. */
struct inbox_source {
    struct tei_source base; /* its users are messages */
    size_t bytes;
};

struct inbox_entry {
    struct tei_link link;
    struct inbox_source *source; /* NULL: this engine itself */
    size_t bytes;
    te_message message;
};

static void free_entry(struct inbox_entry *entry)
{
    tei_message_fini(&entry->message);
    free(entry);
}

static void leave_source(const struct inbox_entry *entry)
{
    if (!entry->source)
        return;
    entry->source->bytes -= entry->bytes;
    tei_source_leave(&entry->source->base);
}

/*
 * No address may have more in the inbox than there is room left. So one alone gets half of it, each of
 * `n` that send all they can a part of n + 1, and there is room for the next one at any time.
 */
static bool has_room(const struct inbox *b, const struct inbox_entry *entry)
{
    size_t free_n = INBOX_MAX - b->n, free_bytes = INBOX_BYTES_MAX - b->bytes;
    const struct inbox_source *s = entry->source;

    if (free_n == 0 || entry->bytes > free_bytes)
        return false;
    return !s || (s->base.users <= free_n && s->bytes <= free_bytes);
}

/* Inbox's lock held. */
static int add(struct inbox *b, const uint8_t *key, struct inbox_entry *entry)
{
    if (key) {
        struct tei_source *base = tei_source_enter(&b->sources, key, sizeof(struct inbox_source));

        if (!base)
            return TE_ERR_MEMORY;
        entry->source = tei_container_of(base, struct inbox_source, base);
        entry->source->bytes += entry->bytes;
    }
    if (!has_room(b, entry)) {
        leave_source(entry);
        return TE_ERR_REJECTED;
    }
    tei_list_push_back(&b->entries, &entry->link);
    b->n++;
    b->bytes += entry->bytes;
    return 0;
}

/* Also when it fails. */
int tei_inbox_add(struct inbox *b, const uint8_t *source, te_message *m)
{
    struct inbox_entry *entry = calloc(1, sizeof(*entry));
    int rc;

    if (!entry) {
        tei_message_fini(m);
        return TE_ERR_MEMORY;
    }
    entry->message = *m;
    entry->bytes = sizeof(*entry) + m->name_len + m->msg_len + 2;
    pthread_mutex_lock(&b->lock);
    rc = add(b, source, entry);
    pthread_mutex_unlock(&b->lock);
    if (!rc) {
        atomic_fetch_add_explicit(&b->received, 1, memory_order_relaxed);
        return 0;
    }
    free_entry(entry);
    if (rc == TE_ERR_MEMORY)
        return rc;
    return TEI_FAIL(
        rc,
        "inbox is full: of %d notifications and %zu bytes one sender's address may have "
        "half; te_notify_recv() takes them",
        INBOX_MAX, INBOX_BYTES_MAX);
}

/* Messages as an array of either kind of row; what an entry has goes over to its row. */
struct taken {
    size_t row; /* bytes of one */
    void (*fill)(void *row, const te_message *m);
    char *rows;
    size_t n;
};

static void fill_text(void *row, const te_message *m)
{
    *(te_notification *)row =
        (te_notification){.name = (char *)(uintptr_t)m->name, .msg = (char *)(uintptr_t)m->msg};
}

static void fill_bytes(void *row, const te_message *m)
{
    *(te_message *)row = *m;
}

static int take_all(struct inbox *b, struct taken *t)
{
    struct tei_link *l;
    int rc = 0;

    pthread_mutex_lock(&b->lock);
    if (b->n)
        t->rows = calloc(b->n, t->row);
    while (t->rows && (l = tei_list_pop(&b->entries))) {
        struct inbox_entry *entry = tei_container_of(l, struct inbox_entry, link);

        t->fill(t->rows + t->n++ * t->row, &entry->message);
        leave_source(entry);
        free(entry);
    }
    if (t->rows)
        b->n = b->bytes = 0;
    else if (b->n)
        rc = TE_ERR_MEMORY;
    pthread_mutex_unlock(&b->lock);
    return rc ? TEI_FAIL(rc, "no memory for the notifications; they are kept") : 0;
}

static int receive(te_engine *e, struct taken *t, void *out, size_t *n)
{
    int rc = tei_engine_check(e);

    if (!rc && (!out || !n))
        rc = TEI_FAIL(TE_ERR_INVALID, "the place for the messages is NULL");
    if (!rc)
        rc = take_all(&e->inbox, t);
    if (!rc)
        *n = t->n;
    return rc;
}

int te_notify_recv(te_engine *e, te_notification **out, size_t *n)
{
    struct taken t = {.row = sizeof(**out), .fill = fill_text};
    int rc = receive(e, &t, out, n);

    if (!rc)
        *out = (te_notification *)(void *)t.rows;
    return rc;
}

int te_notify_recv_bytes(te_engine *e, te_message **out, size_t *n)
{
    struct taken t = {.row = sizeof(**out), .fill = fill_bytes};
    int rc = receive(e, &t, out, n);

    if (!rc)
        *out = (te_message *)(void *)t.rows;
    return rc;
}

void te_notify_free(te_notification *arr, size_t n)
{
    for (size_t i = 0; arr && i < n; i++) {
        free(arr[i].name);
        free(arr[i].msg);
    }
    free(arr);
}

void te_message_free(te_message *arr, size_t n)
{
    for (size_t i = 0; arr && i < n; i++)
        tei_message_fini(&arr[i]);
    free(arr);
}

void tei_inbox_init(struct inbox *b)
{
    pthread_mutex_init(&b->lock, NULL);
    tei_list_init(&b->entries);
    tei_list_init(&b->sources);
}

void tei_inbox_fini(struct inbox *b)
{
    struct tei_link *l;

    while ((l = tei_list_pop(&b->entries))) {
        struct inbox_entry *entry = tei_container_of(l, struct inbox_entry, link);

        leave_source(entry);
        free_entry(entry);
    }
    pthread_mutex_destroy(&b->lock);
}
