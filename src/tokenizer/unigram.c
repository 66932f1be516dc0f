// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unigram.h"

#include "base/text.h"
#include "tokenizer/text/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10
#define MAX_SUM         1e5 /* SentencePiece's; see limit_sums */

/* A node of the trie.  The children of a node are adjacent, sorted by their byte. */
struct trie_node {
    uint32_t first_child;
    uint16_t num_children;
    uint8_t byte;
    int32_t id; /* -1: no token ends here */
    double score;
};

struct unigram {
    struct trie_node *nodes; /* the root is nodes[0] */
    size_t num_nodes, capacity;
    uint32_t roots[256]; /* the root's children by byte; 0: none */
    double unknown_score;
    size_t longest; /* bytes of a token */
    bool single_precision;
};

/* The best segmentation of the text that ends here. */
struct unigram_node {
    double score;
    uint32_t len; /* of its last token; 0: none ends here */
    int32_t id;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct unigram_token *x = a, *y = b;
    uint32_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->text, y->text, len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Tokens [begin, end) share the first `depth` bytes, which lead to `node`. */
struct trie_range {
    size_t node, begin, end;
    uint32_t depth;
};

static size_t add_node(struct unigram *u, uint8_t byte)
{
    if (u->num_nodes == u->capacity) {
        u->capacity = 2 * u->capacity + 1024;
        u->nodes = heap_grow(u->nodes, u->capacity, sizeof *u->nodes);
    }
    u->nodes[u->num_nodes] = (struct trie_node){.byte = byte, .id = -1};
    return u->num_nodes++;
}

/* Adds the children of one node, and their ranges to the queue. */
static void add_children(struct unigram *u, const struct unigram_model *m, struct trie_range r,
                         struct trie_range **queue, size_t *count)
{
    size_t at = r.begin;
    if (at < r.end && m->tokens[at].len == r.depth) {
        const struct unigram_token *t = &m->tokens[at++];
        struct trie_node *n = &u->nodes[r.node];
        n->id = t->id, n->score = t->score;
    }
    u->nodes[r.node].first_child = (uint32_t)u->num_nodes;
    while (at < r.end) {
        size_t end = at;
        uint8_t byte = (uint8_t)m->tokens[at].text[r.depth];
        while (end < r.end && (uint8_t)m->tokens[end].text[r.depth] == byte) end++;
        size_t child = add_node(u, byte);
        u->nodes[r.node].num_children++;
        if ((*count & (*count - 1)) == 0)
            *queue = heap_grow(*queue, *count ? 2 * *count : 1, sizeof **queue);
        (*queue)[(*count)++] = (struct trie_range){child, at, end, r.depth + 1};
        at = end;
    }
}

struct unigram *unigram_make(const struct unigram_model *m)
{
    struct unigram *u = heap(sizeof *u);
    struct trie_range *queue = heap(sizeof *queue);
    size_t count = 1;
    u->unknown_score = m->min_score - UNKNOWN_PENALTY;
    if (m->single_precision) u->unknown_score = (float)u->unknown_score;
    u->single_precision = m->single_precision;
    u->longest = 4; /* of a character without a token */
    for (size_t i = 0; i < m->count; i++)
        if (m->tokens[i].len > u->longest) u->longest = m->tokens[i].len;
    if (m->count) qsort(m->tokens, m->count, sizeof *m->tokens, compare_tokens);
    queue[0] = (struct trie_range){add_node(u, 0), 0, m->count, 0};
    for (size_t i = 0; i < count; i++) add_children(u, m, queue[i], &queue, &count);
    free(queue);
    const struct trie_node *root = u->nodes;
    for (uint32_t i = 0; i < root->num_children; i++)
        u->roots[u->nodes[root->first_child + i].byte] = root->first_child + i;
    return u;
}

void unigram_free(struct unigram *u)
{
    if (!u) return;
    free(u->nodes);
    free(u);
}

void unigram_path_release(struct unigram_path *p)
{
    free(p->pieces), free(p->nodes);
    *p = (struct unigram_path){0};
}

/* The child of a node with this byte, or NULL. */
static const struct trie_node *find_child(const struct unigram *u, const struct trie_node *n,
                                          uint8_t byte)
{
    const struct trie_node *children = u->nodes + n->first_child;
    uint32_t low = 0, high = n->num_children;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (children[middle].byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n->num_children && children[low].byte == byte ? &children[low] : NULL;
}

/* Keeps the better of the segmentation that ends at node `len` and that with this last token. */
static void relax(const struct unigram *u, struct unigram_node *nodes, double score, size_t len,
                  int32_t id)
{
    double sum = nodes[0].score + score;
    if (u->single_precision) sum = (float)sum;
    if (nodes[len].len && !(sum > nodes[len].score)) return;
    nodes[len] = (struct unigram_node){sum, (uint32_t)len, id};
}

/* Relaxes the ends of all tokens that begin at text[at], a character of `size` bytes. */
static void relax_tokens(const struct unigram *u, struct unigram_node *nodes,
                         const unsigned char *text, size_t len, size_t size)
{
    const struct trie_node *n = u->roots[text[0]] ? u->nodes + u->roots[text[0]] : NULL;
    bool has_single = false;
    for (size_t k = 1; n; n = k < len ? find_child(u, n, text[k]) : NULL, k++) {
        if (n->id < 0) continue;
        relax(u, nodes, n->score, k, n->id);
        has_single |= k == size;
    }
    if (!has_single) relax(u, nodes, u->unknown_score, size, -1);
}

/* As SentencePiece does before single precision becomes too coarse, subtracts the score of a node
 * from its own and from those that later segmentations can continue. */
static void limit_sums(const struct unigram *u, struct unigram_node *nodes, size_t left)
{
    float offset = (float)nodes[0].score;
    if (!u->single_precision || fabsf(offset) <= (float)MAX_SUM) return;
    for (size_t i = 0; i <= left && i <= u->longest; i++)
        if (nodes[i].len) nodes[i].score = (float)nodes[i].score - offset;
}

static void trace_back(struct unigram_path *p, size_t len)
{
    p->count = 0;
    for (size_t end = len; end; end -= p->nodes[end].len) p->count++;
    if (p->count > p->capacity) {
        p->capacity = p->count + p->count / 2;
        p->pieces = heap_grow(p->pieces, p->capacity, sizeof *p->pieces);
    }
    size_t index = p->count;
    for (size_t end = len; end; end -= p->nodes[end].len) {
        const struct unigram_node *n = &p->nodes[end];
        p->pieces[--index] = (struct unigram_piece){(uint32_t)(end - n->len), n->len, n->id};
    }
}

void unigram_encode(const struct unigram *u, struct unigram_path *p, const unsigned char *text,
                    size_t len)
{
    if (len + 1 > p->nodes_capacity) {
        p->nodes_capacity = len + len / 2 + 64;
        p->nodes = heap_grow(p->nodes, p->nodes_capacity, sizeof *p->nodes);
    }
    memset(p->nodes, 0, (len + 1) * sizeof *p->nodes);
    int size;
    for (size_t at = 0; at < len; at += (size_t)size) {
        unicode_decode(text + at, len - at, &size);
        limit_sums(u, p->nodes + at, len - at);
        relax_tokens(u, p->nodes + at, text + at, len - at, (size_t)size);
    }
    trace_back(p, len);
}
