/* pickle.c -- fuzzes the unpickler: any bytes must yield at most one value per byte, or a clean
 * error. */
// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Calls every accessor, and touches all bytes of a string. */
static size_t use(const struct pickle_value *v)
{
    int64_t integers[8];
    size_t sum = 0;
    int count = pickle_int_tuple(v, 8, integers);
    BUG_IF(count > 8);
    for (int i = 0; i < count; i++) BUG_IF(integers[i] < 0);
    for (size_t i = 0; v->kind == PICKLE_IS_STRING && i < v->len; i++)
        sum += (unsigned char)v->text[i];
    for (size_t i = 0; i < v->count; i++) sum += (size_t)v->items[i]->kind;
    for (size_t i = 0; i <= v->count; i++) BUG_IF((i < v->count) < !!pickle_item(v, i));
    const struct pickle_value *a = pickle_get(v, "a");
    BUG_IF(a && v->kind != PICKLE_IS_DICT);
    a = pickle_argument(v, v->class, 0);
    BUG_IF(a && v->kind != PICKLE_IS_OBJECT);
    a = pickle_field(v, v->class, "fqn");
    BUG_IF(a && v->kind != PICKLE_IS_OBJECT);
    return sum;
}

static void check(const struct pickle *p, size_t used, size_t len)
{
    BUG_IF(!p->root || used > len || p->num_values > len);
    use(p->root);
    for (size_t i = 0; i < p->root->count; i++) use(p->root->items[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct pickle p;
    size_t used;
    enum status st = pickle_parse(&p, bytes, len, "input", &used);
    if (!st) check(&p, used, len);
    pickle_release(&p);
    enum status any = pickle_parse_any(&p, bytes, len, "input", &used);
    BUG_IF(!st && any); /* it accepts more */
    if (!any) check(&p, used, len);
    pickle_release(&p);
    return 0;
}
