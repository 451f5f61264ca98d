/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds the option table with "NAME=VALUE"; bytes without a name that is an option choose a row by
 * their first byte. A value that is taken must come back from its text unchanged.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"
#include "conf/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void round_trip(const struct tei_option_row *r, const char *value)
{
    static struct tei_conf first, second;
    char text[TEI_CONF_LONG], again[TEI_CONF_LONG];

    if (!tei_value_parse(r, value, &first))
        return;
    tei_value_format(r, &first, text, sizeof text);
    require(tei_value_parse(r, text, &second));
    tei_value_format(r, &second, again, sizeof again);
    require(strcmp(text, again) == 0);
}

static void load(const char *name, const char *value)
{
    static struct tei_conf c;
    struct tei_conf_row row;
    te_options o;

    te_options_init(&o);
    if (te_option_set(&o, name, value) == 0)
        tei_conf_load(o.set, &c);
    else
        tei_conf_load(NULL, &c);
    te_options_fini(&o);
    for (size_t i = 0; tei_conf_row(&c, i, &row); i++)
        require(row.range[0] != '\0' && strlen(row.value) < sizeof row.value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tei_option_row *r;
    char *text = calloc(1, size + 1), *value;

    if (!text)
        return 0;
    te_log_set_level(TE_LOG_OFF);
    memcpy(text, data, size);
    value = strchr(text, '=');
    if (value)
        *value++ = '\0';
    else
        value = text;
    r = tei_option_find(text);
    if (!r)
        r = &tei_option_rows[(size ? data[0] : 0) % tei_option_count];
    round_trip(r, value);
    load(value == text ? r->name : text, value);
    free(text);
    return 0;
}
