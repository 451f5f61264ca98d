/* SPDX-License-Identifier: Apache-2.0 */
/* nvmeof_path.h - which path a buffer has on this host; what may be opened. */
#ifndef TEI_NVMEOF_PATH_H
#define TEI_NVMEOF_PATH_H

#include "base/sock.h"
#include "model/model.h"

/* What this host may be called in local_path_map, in the order in which they are tried. */
struct nvmeof_names {
    const char *segment;       /* of this engine */
    char host[TEI_HOST_MAX];   /* the host part of it */
    char system[TEI_HOST_MAX]; /* gethostname(2) */
};
void tei_nvmeof_names(const char *segment, struct nvmeof_names *out);

/*
 * The path of one buffer of a descriptor on this host, malloc'ed: by local_path_map, or file_path
 * itself where server_name is this host. NULL: there is none, or it cannot be one, and `why` says
 * so.
 */
char *tei_nvmeof_path(const struct tei_segment *s, size_t index, const struct nvmeof_names *me,
                      char *why, size_t n);

/*
 * Paths at or below which files may be opened. While there is none, those may that the program has
 * opened by their path (`by_path`), and none that a record names. It only grows, so it is read without
 * a lock.
 */
struct nvmeof_root {
    struct nvmeof_root *next;
    char path[];
};
struct nvmeof_roots {
    _Atomic(struct nvmeof_root *) first;
};
/* TE_ERR_INVALID: not absolute. */
int tei_nvmeof_roots_add(struct nvmeof_roots *r, const char *path);
/* A list with colons. */
int tei_nvmeof_roots_add_all(struct nvmeof_roots *r, const char *list);
void tei_nvmeof_roots_fini(struct nvmeof_roots *r);

/* By what the path says, which is not looked at: 0, or TE_ERR_ACCESS and the reason in `why`. */
int tei_nvmeof_admit(const struct nvmeof_roots *roots, const char *path, bool by_path, char *why,
                     size_t n);
/*
 * A descriptor with O_PATH of what is at a path that had no links when it was looked up, or -1 and
 * errno. It goes from name to name and follows no link, so nobody leads it elsewhere meanwhile: what has
 * become a link is no folder, and at the end the link itself.
 */
int tei_nvmeof_walk(const char *path);
/*
 * A descriptor with O_PATH of the regular file or block device at `path`, where its links lead to a
 * place that is listed, too. On failure a te_err, its errno in *error (0: none) and the reason in `why`.
 */
int tei_nvmeof_find(const struct nvmeof_roots *roots, const char *path, bool by_path, int *fd,
                    int *error, char *why, size_t n);

#endif
