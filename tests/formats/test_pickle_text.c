// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"
#include "formats/pickle_text.h"
#include "test.h"

TEST(a_written_pickle_reads_back_unchanged)
{
    static const int64_t numbers[] = {0,     255,        256,       65536,       INT32_MAX,
                                      1 - 1, INT32_MIN,  -1,        INT64_MAX,   INT64_MIN,
                                      77,    UINT32_MAX, 1LL << 40, -(1LL << 33)};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    struct text t = {0};
    struct pickle p;
    size_t used;
    pickle_put_begin(&t);
    pickle_put_dict(&t), pickle_put_mark(&t);
    pickle_put_text(&t, "numbers"), pickle_put_integers(&t, numbers, NUMBERS);
    pickle_put_text(&t, "none"), pickle_put_none(&t);
    pickle_put_text(&t, "empty"), pickle_put_integers(&t, numbers, 0);
    pickle_put_text(&t, "list"), pickle_put_list(&t), pickle_put_mark(&t);
    pickle_put_real(&t, -1.25), pickle_put_bool(&t, true), pickle_put_appends(&t);
    pickle_put_text(&t, "object");
    pickle_put_class(&t, "torch.distributed.checkpoint.metadata", "MetadataIndex");
    pickle_put_empty(&t), pickle_put_new(&t), pickle_put_dict(&t), pickle_put_mark(&t);
    pickle_put_text(&t, "fqn"), pickle_put_text(&t, "w");
    pickle_put_items(&t), pickle_put_build(&t), pickle_put_items(&t);
    pickle_put_end(&t);
    CHECK_STATUS(OK, pickle_parse(&p, (unsigned char *)t.data, t.len, "x", &used));
    const struct pickle_value *read = pickle_get(p.root, "numbers");
    CHECK(used == t.len && read->count == NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++) CHECK(pickle_item(read, i)->integer == numbers[i]);
    CHECK(pickle_get(p.root, "empty")->count == 0);
    CHECK(pickle_item(pickle_get(p.root, "list"), 0)->real == -1.25);
    CHECK(pickle_item(pickle_get(p.root, "list"), 1)->integer == 1);
    CHECK(pickle_is_text(pickle_field(pickle_get(p.root, "object"), PICKLE_METADATA_INDEX, "fqn"),
                         "w"));
    pickle_release(&p);
    text_release(&t);
}
