/* SPDX-License-Identifier: Apache-2.0 */
/* document.h - the option table as a page to be read: docs/config.md, man/man5. */
#ifndef TE_INFO_DOCUMENT_H
#define TE_INFO_DOCUMENT_H

#include "conf/conf.h"

#define DOCUMENT_IDLE "Not read by this version."

/* Both print to standard output, and tell of defaults alone, not of the values in force. */
void document_markdown(const struct tei_conf *c);
void document_man(const struct tei_conf *c);

#endif
