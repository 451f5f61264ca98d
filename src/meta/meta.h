/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.h - how engines find and talk to each other: stores, the peer RPC, directories.
 *
 *   store      a dumb key-value server (http, etcd, redis); every call has a deadline and blocks:
 *              caller threads and te/aux only.
 *   rpc        one framed request and reply per connection, on the handshake port
 *              (docs/protocol.md).
 *   directory  name -> segment, over a store or straight from the peer. Nothing outside this folder
 *              knows which it is.
 */
#ifndef TEI_META_H
#define TEI_META_H

#include "base/base.h"
#include "base/jobs.h"
#include "base/loop.h"
#include "base/sock.h"
#include "conf/conf.h"
#include "meta/count.h"
#include "model/model.h"

/* malloc'ed bytes, always followed by a NUL that is not counted. */
struct tei_bytes {
    char *data;
    size_t len;
};
void tei_bytes_fini(struct tei_bytes *b);

/* --------------------------------------------------------------------------------------- stores */

struct tei_store;

/* A key that is followed: what happens after `revision` is of interest. */
struct tei_watched {
    char *key;
    int64_t revision;
};

struct tei_store_ops {
    /* "http"; a store may serve several: the table in store.c maps schemes to ops */
    const char *scheme;
    /* of the store's struct, whose first member is struct tei_store; allocated zeroed */
    size_t size;
    /* `url` is the whole connection string. No traffic needed. */
    int (*open)(struct tei_store *s, const char *url, const struct tei_conf *conf);
    /*
     * TE_ERR_NOT_FOUND when the key is absent; TE_ERR_METADATA or TE_ERR_TIMEOUT when the server
     * is; TE_ERR_TOO_LARGE for a value of more than TE_METADATA_MAX_VALUE. It takes three times the
     * memory of what the server sends at most. Thread-safe. `revision` (may be NULL): the moment that
     * was read, for watch(); 0 where the store has no such thing.
     */
    int (*get)(struct tei_store *s, const char *key, int64_t deadline_ns, struct tei_bytes *out,
               int64_t *revision);
    /*
     * Replaces the value. With ttl_s > 0 the key is gone so many seconds after the last put or
     * keep(), where the server can do that. TE_ERR_EXISTS: the server refused to overwrite (400).
     * TE_ERR_TOO_LARGE: it refused the size, or TE_METADATA_MAX_VALUE does; the text names the
     * option.
     */
    int (*put)(struct tei_store *s, const char *key, const char *value, size_t len, int ttl_s,
               int64_t deadline_ns);
    /* Deleting an absent key succeeds. */
    int (*del)(struct tei_store *s, const char *key, int64_t deadline_ns);
    /*
     * Keeps keys that were put with a ttl_s for another ttl_s; with 0 it only looks, where that is
     * cheap, whether they are there. TE_ERR_NOT_FOUND: one of them is gone, or, where the store
     * `owns` and ttl_s is not 0, was put by another since.
     */
    int (*keep)(struct tei_store *s, const char *const *keys, size_t n, int ttl_s,
                int64_t deadline_ns);
    /*
     * Hands out each key that begins with `prefix`, in any order, until each() returns another
     * value than 0, which is returned. TE_ERR_UNSUPPORTED: this server cannot. TE_ERR_TOO_LARGE: the
     * list, or a step of it, is larger than TE_METADATA_MAX_VALUE.
     */
    int (*list)(struct tei_store *s, const char *prefix, int64_t deadline_ns,
                int (*each)(void *arg, const char *key), void *arg);
    /*
     * Whether list() is known to work, and reads what has the prefix alone; NULL: it is not. No
     * traffic.
     */
    bool (*lists_cheaply)(struct tei_store *s);
    /*
     * Optional, both or neither. watch() blocks and tells each change of the keys after their
     * revisions, which it moves on, by changed(arg, i); 0 once wake() was called, from any thread,
     * since the watch before; or an error. One watch at a time.
     */
    int (*watch)(struct tei_store *s, struct tei_watched *keys, size_t n,
                 void (*changed)(void *arg, size_t i), void *arg);
    void (*wake)(struct tei_store *s);
    void (*close)(struct tei_store *s);
    bool owns; /* keep() tells keys that another has put from ours */
};

struct tei_store {
    const struct tei_store_ops *ops;
    const struct tei_conf *conf;
};

/* In place of a metadata server: a segment's name is where its engine is. */
#define TEI_P2P "P2PHANDSHAKE"

/*
 * By the text before "://" (none: etcd). TE_ERR_UNSUPPORTED names the scheme and what is built in.
 */
int tei_store_open(const char *conn, const struct tei_conf *conf, struct tei_store **out);
/* The schemes that are built in: "http" ...; NULL past the end. */
const char *tei_store_scheme(size_t i);
void tei_store_close(struct tei_store *s);

/* What put() of every store begins with: those who read a value refuse one that is too large. */
int tei_store_check_size(const struct tei_store *s, const char *key, size_t len);
/* What they say of an answer: a format with TE_METADATA_MAX_VALUE. */
#define TEI_STORE_TOO_LARGE                                                               \
    "the answer has more than the %zu bytes of TE_METADATA_MAX_VALUE; if that is right, " \
    "raise it on all engines, or register fewer, larger regions"

extern const struct tei_store_ops tei_store_http_ops;  /* where TE_USE_HTTP */
extern const struct tei_store_ops tei_store_etcd_ops;  /* where TE_USE_ETCD */
extern const struct tei_store_ops tei_store_redis_ops; /* where TE_USE_REDIS */

/* ----------------------------------------------------------------------------------------- keys */

/* malloc'ed; NULL when memory is out. The prefix is that of all keys of this cluster. */
char *tei_keys_prefix(const struct tei_conf *conf);
char *tei_keys_rpc(const struct tei_conf *conf, const char *name);
/* Names with a slash are whole keys below the prefix: TEI_KEYS_FILES "x" is that of files. */
#define TEI_KEYS_FILES "nvmeof/"
bool tei_keys_is_files(const char *name); /* that, or "file:///path" */
char *tei_keys_segment(const struct tei_conf *conf, const char *name);
/*
 * The name of the segment whose descriptor is under `key`, within that text; NULL if the key is
 * none of a segment, or of another cluster.
 */
const char *tei_keys_name(const char *prefix, const char *key);

/* Reads an rpc_meta value: where the engine `name` answers. TE_ERR_JSON. */
int tei_rpc_meta_decode(const struct tei_bytes *b, const char *name, struct tei_hostport *out);

/* ------------------------------------------------------------------------------------------ rpc */

enum tei_rpc_type {
    TEI_RPC_CONNECTION = 0,
    TEI_RPC_METADATA = 1,
    TEI_RPC_NOTIFY = 2,
    TEI_RPC_PROBE = 3
};

/*
 * Frame parser, without I/O: bytes go in, a message comes out. It grows its buffer with the bytes
 * that really arrived, never with the length that a peer merely announced.
 */
struct tei_rpc_parser {
    size_t max_len;   /* of type byte + body */
    size_t small_len; /* the same of a connection or a probe; 0: max_len */
    uint8_t head[8];
    size_t head_got;
    uint64_t want; /* announced length */
    char *body;
    size_t got, cap;
    /* typed: first payload byte was a type; else the old form, a Connection without type byte */
    bool done, typed;
    uint8_t type;
};
void tei_rpc_parser_init(struct tei_rpc_parser *p, size_t max_len);
void tei_rpc_parser_fini(struct tei_rpc_parser *p);
/*
 * Consumes at most n bytes, *used of them. 1: message complete (body, body_len valid), 0: needs
 * more, TE_ERR_PROTOCOL / TE_ERR_TOO_LARGE / TE_ERR_MEMORY.
 */
int tei_rpc_parser_feed(struct tei_rpc_parser *p, const void *data, size_t n, size_t *used);
/* The JSON of a complete message. */
const char *tei_rpc_parser_body(const struct tei_rpc_parser *p, size_t *len);

/* One request being served. Answered exactly once, from any thread, by tei_rpc_reply(). */
struct tei_rpc_call;
struct tei_who; /* auth_who.h */

/* Called on the loop's thread; must not block. `body` is valid during the call. */
typedef void (*tei_rpc_handler)(void *arg, struct tei_rpc_call *call, enum tei_rpc_type type,
                                const char *body, size_t len);

/* What is done with requests. */
struct tei_rpc_service {
    tei_rpc_handler handler;
    /*
     * Optional: whether such a request takes long, so that the handler gives it to another thread. Of
     * these `heavy_max` are in the handler's hands at a time; the others wait, and the addresses they
     * come from take turns.
     */
    bool (*is_heavy)(void *arg, enum tei_rpc_type type, size_t len);
    unsigned heavy_max;
    void *arg; /* of both */
};

/*
 * Sends `text` (a newline is added) with the request's type byte, if it had one. The call is gone
 * after it.
 */
void tei_rpc_reply(struct tei_rpc_call *call, const char *text, size_t len);
/*
 * In the handler, on the loop's thread: who asks, the caller's to free; NULL: nobody that is known, with TE_AUTH=off or
 * from an address of TE_AUTH_CLASSIC. False: no memory.
 */
bool tei_rpc_call_who(const struct tei_rpc_call *call, struct tei_who **out);
/* The key of the address that it comes from, see base/source.h; valid as long as the call. */
const uint8_t *tei_rpc_source(const struct tei_rpc_call *call);
/* Whether nobody waits for the answer any more: any will do then. */
bool tei_rpc_is_moot(const struct tei_rpc_call *call);

/*
 * The server: each connection is a state machine on the loop, so a slow or silent client delays no
 * other. A client has 5 s for its request and 5 s to close after the reply; at most 1,024 at once,
 * beyond which the oldest one of the address that has the most is dropped. Of a connection or a probe 64 KiB
 * are read at most, of anything else MC_HANDSHAKE_MAX_LENGTH.
 */
struct tei_rpc_server;
/* Takes over `listen_fd` (already listening), on failure too: it is closed then. */
int tei_rpc_server_open(struct tei_loop *loop, int listen_fd, const struct tei_conf *conf,
                        const struct tei_rpc_service *service, struct tei_rpc_server **out);
/*
 * On the loop's thread, or with the loop's lock held, or after the loop ended. Calls still
 * unanswered stay valid: their reply is then dropped.
 */
void tei_rpc_server_close(struct tei_rpc_server *s);

/*
 * One request to host:port, blocking until `deadline_ns`. `auth`: what is proved and asked for before it, NULL:
 * nothing. TE_ERR_PEER: no connection. TE_ERR_REJECTED: one side does not prove who it is.
 * TE_ERR_TIMEOUT, TE_ERR_LINK, TE_ERR_PROTOCOL (bad frame or other type in the reply),
 * TE_ERR_TOO_LARGE (names MC_HANDSHAKE_MAX_LENGTH).
 */
int tei_rpc_request(struct tei_auth *auth, const struct tei_hostport *where, enum tei_rpc_type type,
                    const char *body, size_t len, size_t max_len, int64_t deadline_ns,
                    struct tei_bytes *reply);
/* The same; *ticket: what the engine has given us to prove ourselves with on its other ports, the caller's; or NULL. */
int tei_rpc_request_ticket(struct tei_auth *auth, const struct tei_hostport *where,
                           enum tei_rpc_type type, const char *body, size_t len, size_t max_len,
                           int64_t deadline_ns, struct tei_bytes *reply,
                           struct tei_ticket **ticket);

/* Bodies. The decode functions take hostile bytes; strings are malloc'ed. */
/* `life`: the incarnation of the engine that it is for; 0: it is for any. */
int tei_notify_encode(const te_message *m, uint64_t life, char **out);
/*
 * `counts` not NULL: its `life` is set; one that carries additions to counters leaves *out empty, its name NULL, and is read to there
 * (meta/count.h); NULL: it is read as a message.
 */
int tei_notify_decode(const char *body, size_t len, te_message *out, struct tei_counts *counts);
/* A copy, each part with a NUL behind it as all messages that the functions here take. TE_ERR_MEMORY. */
int tei_message_copy(const te_message *m, te_message *out);
void tei_message_fini(te_message *m);
#define TEI_NOTIFY_OK      "{\"name\":\"\",\"notify_msg\":\"success\"}"
#define TEI_NOTIFY_REFUSED "{\"name\":\"\",\"notify_msg\":\"\"}"
/* The reply to one that is for another incarnation than that of the engine, which is told. */
#define TEI_NOTIFY_OTHER_MAX 96
void tei_notify_other(uint64_t own, char out[TEI_NOTIFY_OTHER_MAX]);
#define TEI_PROBE_REQUEST "{}"
#define TEI_PROBE_OK      "{\"status\":\"success\"}"
/* The same between engines of this make, which tells what the engine takes. */
#define TEI_PROBE_ASK    "{\"te\":{}}"
#define TEI_PROBE_ANSWER "{\"status\":\"success\",\"te\":{\"notify\":1}}"
/* The reply of an engine that makes no RDMA connections. */
#define TEI_CONNECTION_REPLY(why)                                                   \
    "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\"," \
    "\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"" why "\"}"
#define TEI_CONNECTION_NONE      TEI_CONNECTION_REPLY("")
#define TEI_CONNECTION_MALFORMED TEI_CONNECTION_REPLY("malformed request: not a JSON object")

/*
 * tei_rpc_request for a notification and a probe: TE_ERR_REJECTED if the peer did not take it.
 * TE_ERR_UNSUPPORTED: it is no text, and the peer takes nothing else. TE_ERR_STALE: the peer's incarnation is not
 * `life`, 0: it is for any.
 */
int tei_rpc_notify(struct tei_auth *auth, const struct tei_hostport *where, const te_message *m,
                   uint64_t life, int64_t deadline_ns);
/*
 * The incarnation of the engine that answers there; `life` is the one that is expected, not 0. TE_ERR_UNSUPPORTED: the
 * engine does not keep to what is said for one incarnation alone.
 */
int tei_rpc_life(struct tei_auth *auth, const struct tei_hostport *where, uint64_t life,
                 uint64_t *out, int64_t deadline_ns);
/* TE_ERR_STALE with a text: the engine there is of another incarnation. */
int tei_rpc_fail_life(const struct tei_hostport *where, uint64_t wanted, uint64_t found);
int tei_rpc_probe(struct tei_auth *auth, const struct tei_hostport *where, int64_t deadline_ns);
/* Whether the engine of that descriptor, NULL if it cannot be read, answers there. TE_ERR_PEER: another does. */
int tei_rpc_ask_owner(struct tei_auth *auth, const struct tei_hostport *where,
                      const struct tei_segment *s, int64_t deadline_ns);

/* ------------------------------------------------------------------------------------ directory */

struct tei_directory;

struct tei_directory_ops {
    /*
     * The name of our segment, from what the user asked for and the address that was got.
     * TE_ERR_INVALID for a name with '/'.
     */
    int (*own_name)(struct tei_directory *d, const char *wanted, const struct tei_hostport *addr,
                    char *out, size_t n);
    /*
     * The host that peers must be able to route back to, for choosing our address; false if there
     * is none to ask.
     */
    bool (*route_hint)(struct tei_directory *d, char *host, size_t n);
    /*
     * Announces where `name` answers RPCs / removes that. A refused put of one's own key is tried
     * again after a delete.
     */
    int (*announce)(struct tei_directory *d, const char *name, const struct tei_hostport *addr);
    /*
     * Stores / removes the descriptor. TE_ERR_TOO_LARGE names the knob. A directory that stores
     * nothing says 0.
     */
    int (*publish)(struct tei_directory *d, const char *name, const char *text, size_t len);
    int (*withdraw)(struct tei_directory *d, const char *name);
    /*
     * Keeps what was announced and published from expiring; to be called three times within
     * TE_METADATA_TTL_S. TE_ERR_NOT_FOUND: the directory has lost it, announce and publish again.
     * TE_ERR_EXISTS: another engine has taken the name. Else the directory cannot be asked.
     */
    int (*keep)(struct tei_directory *d, const char *name);
    /* Where `name` answers RPCs; asks anew when `fresh`. */
    int (*rpc_addr)(struct tei_directory *d, const char *name, bool fresh,
                    struct tei_hostport *out);
    /*
     * Fetches the descriptor and where its engine is. `old` (may be NULL) is what the caller has:
     * when it is of an engine of ours, that engine is asked itself, else the store is. `where` is
     * where the engine was (port 0: not known), for when the store cannot be asked. Host "" and port
     * 0 come out: the segment is registered, its engine is not up yet. `revision` (may be NULL) is
     * for follow().
     */
    int (*lookup)(struct tei_directory *d, const char *name, const struct tei_segment *old,
                  struct tei_segment **out, struct tei_hostport *where, int64_t *revision);
    /*
     * Of a directory that learns of changes by itself; of another one they do nothing. After listen(),
     * at most once, changed() is told each change of the descriptor of a name that is followed, in a
     * thread of its own. Until unlisten(), after which none is told.
     */
    int (*listen)(struct tei_directory *d, void (*changed)(void *arg, const char *name), void *arg);
    void (*follow)(struct tei_directory *d, const char *name, int64_t revision);
    void (*forget)(struct tei_directory *d, const char *name);
    void (*unlisten)(struct tei_directory *d);
    void (*close)(struct tei_directory *d);
    bool stores; /* publish() costs traffic */
};

struct tei_directory {
    const struct tei_directory_ops *ops;
    const struct tei_conf *conf;
    /*
     * Files were asked for, so a bare name may be that of a record of files, where no engine is
     * announced under it. The core sets it.
     */
    _Atomic bool bare_files;
};

/*
 * Segments that no directory is asked for: "file:///path", one file or block device of this host.
 * TE_ERR_NOT_FOUND, TE_ERR_ACCESS; TE_ERR_INVALID: the path is not absolute, or leads to something
 * else, or to an empty file.
 */
bool tei_file_is_name(const char *name);
int tei_file_lookup(const char *name, struct tei_segment **out);

/*
 * The end of a text that says that there is no segment `name`: "; did you mean 'x', 'y'?", of the names
 * that the store has but for our own, or else how to see them. With `may_list` it may list keys; see
 * directory_near.c.
 */
#define TEI_DIRECTORY_NEAR_MAX 256
void tei_directory_near(struct tei_store *s, const struct tei_conf *conf, const char *own,
                        const char *name, bool may_list, char out[TEI_DIRECTORY_NEAR_MAX]);

/* "P2PHANDSHAKE" or a store's connection string. */
int tei_directory_open(const char *conn, const struct tei_conf *conf, struct tei_directory **out);

#endif
