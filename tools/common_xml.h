/* SPDX-License-Identifier: Apache-2.0 */
/* Text in XML and HTML. */
#ifndef TOOLS_COMMON_XML_H
#define TOOLS_COMMON_XML_H

#include <stdio.h>

/*
 * Prints text so that it is neither markup nor anything that XML forbids, within an element or a
 * quoted attribute. A byte that is no UTF-8, or a character that XML does not allow, becomes
 * U+FFFD.
 */
void xml_text(FILE *out, const char *text);

#endif
