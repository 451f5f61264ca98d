/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_serve.h - TE_METRICS and TE_TOP: the metrics of an engine, as text. */
#ifndef TEI_METRICS_SERVE_H
#define TEI_METRICS_SERVE_H

#include "te.h"

/* The metrics in the format of Prometheus, malloc'ed; NULL when memory is out. */
char *tei_metrics_text(te_engine *e);

/* ---- metrics_file.c */
#define TEI_METRICS_FILE "file:" /* before a path in TE_METRICS */
int tei_metrics_file_start(te_engine *e, const char *path);
/* Once `closing` is set: the file is gone, and stays so. */
void tei_metrics_file_remove(te_engine *e);
/* Under ctl.lock, once no job runs. */
void tei_metrics_file_stop(te_engine *e);
void tei_metrics_file_fini(te_engine *e);

/* ---- metrics_serve.c */
/* What TE_METRICS and TE_TOP ask for. TE_ERR_INVALID: it cannot be read. */
int tei_metrics_serve_start(te_engine *e);
/* Under ctl.lock, once no job runs. */
void tei_metrics_serve_stop(te_engine *e);
/* Once te/ctl has ended. */
void tei_metrics_serve_fini(te_engine *e);

#endif
