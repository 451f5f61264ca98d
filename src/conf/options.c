/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/sized.h"

static void free_one(struct te_option_list *one)
{
    explicit_bzero(one->value, strlen(one->value)); /* it may be a password */
    free(one);
}

static void remove_row(struct te_option_list **at, const struct tei_option_row *row)
{
    while (*at && (*at)->row != row)
        at = &(*at)->next;
    if (*at) {
        struct te_option_list *old = *at;

        *at = old->next;
        free_one(old);
    }
}

int tei_option_list_add(struct te_option_list **list, const char *name, const char *value)
{
    size_t len = strlen(value);
    struct te_option_list *one;
    int rc = tei_conf_check(name, value);

    if (rc)
        return rc;
    one = malloc(sizeof *one + len + 1);
    if (!one)
        return TEI_FAIL(TE_ERR_MEMORY, "option %s: out of memory", name);
    one->row = tei_option_find(name);
    memcpy(one->value, value, len + 1);
    remove_row(list, one->row);
    one->next = *list;
    *list = one;
    return 0;
}

void tei_option_list_free(struct te_option_list *list)
{
    while (list) {
        struct te_option_list *next = list->next;

        free_one(list);
        list = next;
    }
}

void te_options_init_size(te_options *o, size_t size)
{
    const te_options defaults = {.size = size, .metadata = "P2PHANDSHAKE", .auto_discover = 1};

    if (!o)
        return;
    if (size > sizeof defaults)
        memset((char *)o + sizeof defaults, 0, size - sizeof defaults);
    memcpy(o, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

int te_option_set(te_options *o, const char *name, const char *value)
{
    if (!o || !name || !value)
        return TEI_FAIL(TE_ERR_INVALID, "te_option_set: %s is NULL",
                        !o      ? "the options"
                        : !name ? "the name"
                                : "the value");
    return tei_option_list_add(&o->set, name, value);
}

int te_option_get(const te_options *o, const char *name, char *buf, size_t n)
{
    char text[TEI_CONF_LONG];
    int rc;

    if (!name)
        return TEI_FAIL(TE_ERR_INVALID, "te_option_get: the name is NULL");
    rc = tei_conf_get(o ? o->set : NULL, name, text, sizeof(text));
    return rc ? rc : tei_text_give(text, buf, n);
}

void te_options_fini(te_options *o)
{
    if (!o)
        return;
    tei_option_list_free(o->set);
    o->set = NULL;
}
