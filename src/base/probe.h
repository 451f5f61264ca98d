/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe.h - places that bpftrace, perf and SystemTap can look at while the library runs (USDT, provider
 * transfer_engine). Each is a nop until somebody looks. They are there if <sys/sdt.h> was when the library was
 * built; docs/tracing.md lists them with their arguments.
 */
#ifndef TEI_PROBE_H
#define TEI_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif

#ifdef DTRACE_PROBE2
#define TEI_PROBE2(name, a, b)          DTRACE_PROBE2(transfer_engine, name, a, b)
#define TEI_PROBE3(name, a, b, c)       DTRACE_PROBE3(transfer_engine, name, a, b, c)
#define TEI_PROBE4(name, a, b, c, d)    DTRACE_PROBE4(transfer_engine, name, a, b, c, d)
#define TEI_PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(transfer_engine, name, a, b, c, d, e)
#else
#define TEI_PROBE2(name, a, b)          ((void)(a), (void)(b))
#define TEI_PROBE3(name, a, b, c)       (TEI_PROBE2(name, a, b), (void)(c))
#define TEI_PROBE4(name, a, b, c, d)    (TEI_PROBE3(name, a, b, c), (void)(d))
#define TEI_PROBE5(name, a, b, c, d, e) (TEI_PROBE4(name, a, b, c, d), (void)(e))
#endif

#endif
