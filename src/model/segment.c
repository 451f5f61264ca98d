/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/secret.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    enum tei_mem_kind kind;
} words[] = {
    {"cpu", TEI_MEM_HOST},
#define WORD(name, word) {word, TEI_MEM_##name},
    TEI_MEM_DEVICES(WORD){"ascend", TEI_MEM_ASCEND},
#undef WORD
};

/*
 * Peers write all sorts of things there, and some the address of their engine: a word of letters that is
 * not known can be a device only before a number of at most three digits.
 */
enum tei_mem_kind tei_mem_kind_of(const char *location)
{
    size_t word = strspn(location, "abcdefghijklmnopqrstuvwxyz_");
    size_t digits = location[word] == ':' ? strspn(location + word + 1, "0123456789") : 0;

    if (word == 0 || digits == 0 || location[word + 1 + digits])
        return TEI_MEM_HOST;
    for (size_t i = 0; i < TEI_ARRAY_LEN(words); i++)
        if (strlen(words[i].word) == word && strncmp(location, words[i].word, word) == 0)
            return words[i].kind;
    return digits > 3 ? TEI_MEM_HOST : TEI_MEM_OTHER;
}

const char *tei_mem_word(enum tei_mem_kind kind)
{
    size_t i = 0;

    while (i < TEI_ARRAY_LEN(words) - 1 && words[i].kind != kind)
        i++;
    return words[i].word;
}

struct tei_segment *tei_segment_get(struct tei_segment *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void tei_segment_put(struct tei_segment *s)
{
    /* Release: this holder's reads come before; acquire: the last one frees after all of them. */
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    tei_ticket_put(s->ticket);
    json_decref(s->root);
    free(s->buffers);
    free(s->spots);
    free(s->text);
    free(s->name);
    free(s->protocol);
    free(s);
}

/* Number of buffers that begin at or below `addr`. */
static size_t begun_by(const struct tei_segment *s, uint64_t addr)
{
    size_t lo = 0, hi = s->n_buffers;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->buffers[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool tei_segment_cover(const struct tei_segment *s, uint64_t addr, uint64_t length, size_t *at,
                       uint64_t *part)
{
    size_t n = begun_by(s, addr);
    uint64_t into, room;

    if (!n)
        return false;
    into = addr - s->buffers[n - 1].addr;
    if (into >= s->buffers[n - 1].length)
        return false;
    room = s->buffers[n - 1].length - into;
    *at = n - 1;
    *part = length < room ? length : room;
    return true;
}

const struct tei_buffer *tei_segment_find(const struct tei_segment *s, uint64_t addr,
                                          uint64_t length)
{
    size_t n = begun_by(s, addr);

    return n && tei_buffer_holds(&s->buffers[n - 1], addr, length) ? &s->buffers[n - 1] : NULL;
}

int tei_segment_allows(const struct tei_segment *s, uint64_t addr, uint64_t length, unsigned access)
{
    bool denied = false;
    uint64_t part;
    size_t at;

    do {
        if (!tei_segment_cover(s, addr, length, &at, &part))
            return TE_ERR_STALE;
        denied |= (s->buffers[at].access & access) != access;
        addr += part;
        length -= part;
    } while (length);
    return denied ? TE_ERR_ACCESS : TE_ERR_OK;
}
