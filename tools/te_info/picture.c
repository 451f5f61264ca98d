/* SPDX-License-Identifier: Apache-2.0 */
#include "te_info/picture.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common_xml.h"

/* In pixels. Letters are taken to be as wide as those of a wide font. */
#define LETTER    7.8
#define EDGE      12  /* between things */
#define TOP       44  /* below the heading */
#define NODE_H    104 /* of a NUMA node with its NICs */
#define NIC_H     62
#define ROW_H     38
#define LEAST     132 /* a column */
#define WIDEST    240
#define NARROWEST 460 /* the picture: a line of its foot */
#define FOOT      88  /* what the words of the matrix mean */

struct picture {
    FILE *out;
    const json_t *topology;
    const json_t **nics; /* in the order of their nodes, those of no known node last */
    size_t n_nics;
    int label, column; /* widths */
};

static const char *const style[] = {
    "<style>",
    "text{font:14px system-ui,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif;",
    "text-anchor:middle}.plain{font-weight:400}.bold{font-weight:600}.head{font-size:15px;font-weight:600}",
    ".head,.small{text-anchor:start}.small{font-size:13px}rect{stroke-width:1.3px}",
    ".room{fill:none;stroke-dasharray:5 4}",
    ".paper{fill:#ffffff}text{fill:#1f2328}.small{fill:#59636e}.room{stroke:#818b98}",
    ".part{fill:#ffffff;stroke:#818b98}.memory{fill:#fff1d6;stroke:#9a6700}",
    ".good{fill:#dafbe1;stroke:#1a7f37}.bad{fill:#ffebe9;stroke:#cf222e}",
    ".engine{fill:#ddf4ff;stroke:#0969da}",
    "@media (prefers-color-scheme:dark){",
    ".paper{fill:#0d1117}text{fill:#e6edf3}.small{fill:#9198a1}.room{stroke:#656c76}",
    ".part{fill:#0d1117;stroke:#656c76}.memory{fill:#3a2b0a;stroke:#d29922}",
    ".good{fill:#12301b;stroke:#3fb950}.bad{fill:#3c1618;stroke:#f85149}",
    ".engine{fill:#122d42;stroke:#4493f8}}",
    "</style>",
};

static int node_of(const json_t *nic)
{
    return (int)json_integer_value(json_object_get(nic, "numa"));
}

static const char *word(const json_t *nic, const char *key)
{
    const char *text = json_string_value(json_object_get(nic, key));

    return text ? text : "";
}

static bool usable(const json_t *nic)
{
    return !json_is_false(json_object_get(nic, "usable")) &&
           !json_is_false(json_object_get(nic, "used"));
}

/* What stands below the name of a NIC. */
static void describe(const json_t *nic, char *text, size_t n)
{
    double speed = json_number_value(json_object_get(nic, "speed_gbps"));

    if (!usable(nic))
        snprintf(text, n, "%s", word(nic, "why"));
    else if (speed > 0)
        snprintf(text, n, "%g Gb/s", speed);
    else
        snprintf(text, n, "speed unknown");
}

static int width_of(const char *text)
{
    return (int)((double)strlen(text) * LETTER) + 2 * EDGE;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* ---- Order and widths ------------------------------------------------------------------------ */

static bool goes_before(const json_t *a, const json_t *b)
{
    return node_of(b) < 0 ? node_of(a) >= 0 : node_of(a) >= 0 && node_of(a) < node_of(b);
}

static void sort_nics(struct picture *p, const json_t *nics)
{
    for (size_t i = 0; i < json_array_size(nics); i++) {
        const json_t *nic = json_array_get(nics, i);
        size_t at = p->n_nics++;

        for (; at > 0 && goes_before(nic, p->nics[at - 1]); at--)
            p->nics[at] = p->nics[at - 1];
        p->nics[at] = nic;
    }
}

static void measure(struct picture *p)
{
    const char *location;
    json_t *lists;
    char text[256];

    p->column = LEAST;
    for (size_t i = 0; i < p->n_nics; i++) {
        describe(p->nics[i], text, sizeof text);
        p->column = clamp(width_of(text), p->column, WIDEST);
        p->column = clamp(width_of(word(p->nics[i], "device")), p->column, WIDEST);
    }
    p->label = LEAST;
    json_object_foreach((json_t *)p->topology, location, lists)
        p->label = clamp(width_of(location), p->label, WIDEST);
}

static int left_of(const struct picture *p, size_t column)
{
    return EDGE + p->label + EDGE + (int)column * (p->column + EDGE);
}

/* ---- Marks ----------------------------------------------------------------------------------- */

static void print_box(const struct picture *p, const char *kind, int x, int y, int w, int h)
{
    fprintf(p->out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" class=\"%s\"/>\n",
            x, y, w, h, kind);
}

/* As much of the text as `room` pixels hold. */
static void print_words(const struct picture *p, const char *kind, int x, int y, int room,
                        const char *text)
{
    char cut[256];
    size_t most = (size_t)clamp((int)(room / LETTER), 4, (int)sizeof cut - 1);

    snprintf(cut, sizeof cut, "%s", text);
    if (strlen(cut) > most)
        memcpy(cut + most - 3, "...", 4);
    fprintf(p->out, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, kind);
    xml_text(p->out, cut);
    fputs("</text>\n", p->out);
}

static void print_nic(const struct picture *p, size_t i)
{
    int x = left_of(p, i), middle = x + p->column / 2, y = TOP + NODE_H - NIC_H - EDGE;
    char text[256];

    describe(p->nics[i], text, sizeof text);
    print_box(p, usable(p->nics[i]) ? "engine" : "bad", x, y, p->column, NIC_H);
    print_words(p, "bold", middle, y + 26, p->column, word(p->nics[i], "device"));
    print_words(p, "plain", middle, y + 46, p->column, text);
}

/* The NICs from `from` to before `to`, which are at the same node. */
static void print_node(const struct picture *p, size_t from, size_t to)
{
    int x = left_of(p, from) - EDGE / 4, node = node_of(p->nics[from]);
    char text[32];

    snprintf(text, sizeof text, node < 0 ? "node unknown" : "NUMA node %d", node);
    print_box(p, "room", x, TOP, (int)(to - from) * (p->column + EDGE) - EDGE / 2, NODE_H);
    print_words(p, "small", x + EDGE, TOP + 20, p->column, text);
    for (size_t i = from; i < to; i++)
        print_nic(p, i);
}

static bool lists(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0)
            return true;
    return false;
}

static void print_row(const struct picture *p, int y, const char *location, const json_t *row)
{
    int text_y = y + ROW_H / 2 + 5;

    print_box(p, "memory", EDGE, y, p->label, ROW_H);
    print_words(p, "bold", EDGE + p->label / 2, text_y, p->label, location);
    for (size_t i = 0; i < p->n_nics; i++) {
        const char *name = word(p->nics[i], "device");
        bool preferred = lists(json_array_get(row, 0), name),
             other = lists(json_array_get(row, 1), name);
        int x = left_of(p, i);

        if (preferred || other)
            print_box(p, preferred ? "good" : "part", x, y, p->column, ROW_H);
        print_words(p, preferred ? "bold" : "plain", x + p->column / 2, text_y, p->column,
                    preferred ? "preferred"
                    : other   ? "other"
                              : "-");
    }
}

/* ---- The picture ----------------------------------------------------------------------------- */

static void print_matrix(const struct picture *p)
{
    static const char *const meanings[] = {
        "cpu:N: memory of NUMA node N; cuda:N, hip:N: of a GPU.",
        "preferred: carries that memory; -: does not carry it.",
        "other: takes the place of a preferred one that fails.",
        "A red NIC is not used, for the reason below its name.",
    };
    int y = TOP + NODE_H + EDGE;
    const char *location;
    json_t *row;

    for (size_t from = 0, to = 0; from < p->n_nics; from = to) {
        while (to < p->n_nics && node_of(p->nics[to]) == node_of(p->nics[from]))
            to++;
        print_node(p, from, to);
    }
    if (p->n_nics == 0)
        print_words(p, "small", left_of(p, 0), TOP + NODE_H / 2, 2 * WIDEST, "No RDMA NIC here.");
    json_object_foreach((json_t *)p->topology, location, row) {
        print_row(p, y, location, row);
        y += ROW_H + EDGE;
    }
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++, y += 18)
        print_words(p, "small", EDGE, y + 16, 2 * WIDEST, meanings[i]);
}

bool picture_print(FILE *out, const json_t *links)
{
    const json_t *nics = json_object_get(links, "local_nics");
    struct picture p = {.out = out, .topology = json_object_get(links, "topology")};
    int w, h = TOP + NODE_H + EDGE + FOOT;

    p.nics = calloc(json_array_size(nics) + 1, sizeof *p.nics);
    if (!p.nics)
        return false;
    sort_nics(&p, nics);
    measure(&p);
    w = clamp(left_of(&p, p.n_nics), NARROWEST, INT_MAX);
    h += (int)json_object_size(p.topology) * (ROW_H + EDGE);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\">\n"
            "<title>Which NICs carry which memory: %zu NICs, %zu places</title>\n",
            w, h, w, h, p.n_nics, json_object_size(p.topology));
    for (size_t i = 0; i < sizeof style / sizeof style[0]; i++)
        fprintf(out, "%s\n", style[i]);
    fprintf(out, "<rect width=\"%d\" height=\"%d\" rx=\"8\" class=\"paper\"/>\n", w, h);
    print_words(&p, "head", EDGE, 26, w, "Which NICs carry which memory");
    print_matrix(&p);
    fputs("</svg>\n", out);
    free(p.nics);
    return true;
}
