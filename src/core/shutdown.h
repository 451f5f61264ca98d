/* SPDX-License-Identifier: Apache-2.0 */
/* shutdown.h - te_shutdown_on_signal(). */
#ifndef TEI_SHUTDOWN_H
#define TEI_SHUTDOWN_H

#include "te.h"

void tei_shutdown_forget(const te_engine *e);

#endif
