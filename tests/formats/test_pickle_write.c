// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"
#include "formats/pickle_write.h"
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
    pickle_write_proto(&t);
    pickle_write_empty_dict(&t), pickle_write_mark(&t);
    pickle_write_string(&t, "numbers"), pickle_write_int_tuple(&t, numbers, NUMBERS);
    pickle_write_string(&t, "none"), pickle_write_none(&t);
    pickle_write_string(&t, "empty"), pickle_write_int_tuple(&t, numbers, 0);
    pickle_write_string(&t, "list"), pickle_write_empty_list(&t), pickle_write_mark(&t);
    pickle_write_float(&t, -1.25), pickle_write_bool(&t, true), pickle_write_appends(&t);
    pickle_write_string(&t, "object");
    pickle_write_global(&t, "torch.distributed.checkpoint.metadata", "MetadataIndex");
    pickle_write_empty_tuple(&t), pickle_write_newobj(&t), pickle_write_empty_dict(&t),
        pickle_write_mark(&t);
    pickle_write_string(&t, "fqn"), pickle_write_string(&t, "w");
    pickle_write_setitems(&t), pickle_write_build(&t), pickle_write_setitems(&t);
    pickle_write_stop(&t);
    CHECK_STATUS(OK, pickle_parse(&p, (unsigned char *)t.data, t.len, "x", &used));
    const struct pickle_value *read = pickle_get(p.root, "numbers");
    CHECK(used == t.len && read->count == NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++) CHECK(pickle_item(read, i)->integer == numbers[i]);
    CHECK(pickle_get(p.root, "empty")->count == 0);
    CHECK(pickle_item(pickle_get(p.root, "list"), 0)->real == -1.25);
    CHECK(pickle_item(pickle_get(p.root, "list"), 1)->integer == 1);
    CHECK(pickle_is_string(pickle_field(pickle_get(p.root, "object"), PICKLE_METADATA_INDEX, "fqn"),
                           "w"));
    pickle_release(&p);
    text_release(&t);
}

TEST(bytes_are_a_latin1_string_to_encode)
{
    static const char want[] = "c_codecs\nencode\n(X\5\0\0\0A\xc3\xbf\xc2\x80"
                               "X\6\0\0\0latin1tR";
    struct text t = {0};
    pickle_write_bytes(&t, "A\xff\x80", 3);
    CHECK(t.len == sizeof want - 1 && !memcmp(t.data, want, t.len));
    text_release(&t);
}
