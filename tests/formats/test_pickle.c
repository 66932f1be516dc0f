// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"
#include "test.h"

static enum status parse(struct pickle *p, const char *bytes, size_t len)
{
    size_t used;
    return pickle_parse(p, (const unsigned char *)bytes, len, "x.pkl", &used);
}

static void check_rejected(const char *bytes, size_t len, const char *why)
{
    struct pickle p;
    CHECK_STATUS(DATA, parse(&p, bytes, len));
    CHECK_MESSAGE("x.pkl");
    CHECK_MESSAGE(why);
    pickle_release(&p);
}
#define REJECTED(bytes, why) check_rejected("" bytes, sizeof bytes - 1, why)

TEST(unpickling_yields_the_pickled_values)
{
    static const char bytes[] = "\x80\2}(X\1\0\0\0aK\7X\1\0\0\0bJ\xfe\xff\xff\xff"
                                "X\1\0\0\0cG\x3f\xe0\0\0\0\0\0\0X\1\0\0\0d](NK\1\x88"
                                "e\x8c\1e\x8a\3\0\0\1X\1\0\0\0fK\1K\2\x86u.rest";
    struct pickle p;
    size_t used;
    int64_t both[2];
    CHECK_STATUS(OK, pickle_parse(&p, (const unsigned char *)bytes, sizeof bytes - 1, "x", &used));
    CHECK(used == sizeof bytes - 1 - 4 && p.root->kind == PICKLE_IS_DICT && p.root->count == 12);
    CHECK(pickle_get(p.root, "a")->integer == 7 && pickle_get(p.root, "b")->integer == -2);
    CHECK(pickle_get(p.root, "c")->real == 0.5 && pickle_get(p.root, "e")->integer == 65536);
    const struct pickle_value *list = pickle_get(p.root, "d");
    CHECK(list->kind == PICKLE_IS_LIST && list->count == 3);
    CHECK(pickle_item(list, 0)->kind == PICKLE_IS_NONE && pickle_item(list, 2)->integer == 1);
    CHECK(pickle_int_tuple(pickle_get(p.root, "f"), 2, both) == 2 && both[0] == 1 && both[1] == 2);
    CHECK(pickle_int_tuple(pickle_get(p.root, "f"), 1, both) == -1);
    CHECK(!pickle_get(p.root, "g") && !pickle_item(list, 3) && !pickle_item(NULL, 0));
    CHECK(pickle_int_tuple(list, 3, both) == -1);
    pickle_release(&p);
}

TEST(an_object_of_a_known_class_exposes_its_arguments_and_state)
{
    static const char bytes[] = "\x80\4\x8c\x22torch.distributed.checkpoint.other\x8c\x0d"
                                "MetadataIndex\x93)\x81}(X\3\0\0\0fqnX\1\0\0\0wub.";
    struct pickle p;
    CHECK_STATUS(OK, parse(&p, bytes, sizeof bytes - 1));
    CHECK(pickle_is_string(pickle_field(p.root, PICKLE_METADATA_INDEX, "fqn"), "w"));
    CHECK(!pickle_field(p.root, PICKLE_METADATA, "fqn"));
    pickle_release(&p);
    static const char sizes[] = "\x80\2ctorch\nSize\nK\2K\3\x86\x85R.";
    int64_t both[2];
    CHECK_STATUS(OK, parse(&p, sizes, sizeof sizes - 1));
    CHECK(pickle_int_tuple(p.root, 2, both) == 2 && both[1] == 3);
    pickle_release(&p);
}

TEST(a_pickle_that_names_any_other_global_is_rejected)
{
    REJECTED("\x80\2cos\nsystem\nX\2\0\0\0id\x85R.", "global os.system");
    REJECTED("\x80\2cposix\nsystem\n.", "global posix.system");
    REJECTED("\x80\2cargparse\nNamespace\n.", "global argparse.Namespace");
    REJECTED("\x80\2cbuiltins\neval\n.", "global builtins.eval");
    REJECTED("\x80\2ctorch.hub\nload\n.", "global torch.hub.load");
    REJECTED("\x80\2ctorchx\nSize\n.", "global torchx.Size");
    REJECTED("\x80\4\x8c\2os\x8c\6system\x93.", "global os.system");
    REJECTED("\x80\2cbuiltins\nexec\n.", "builtins.exec");
}

TEST(an_invalid_pickle_is_rejected_with_the_byte_offset)
{
    REJECTED("\x80\2.", "STOP with 0 values");
    REJECTED("\x80\2NN.", "STOP with 2 values");
    REJECTED("\x80\2t.", "no mark");
    REJECTED("\x80\2(N\x86.", "byte 4: stack underflow");
    REJECTED("\x80\2\x85.", "stack underflow");
    REJECTED("\x80\2NNa.", "not such a container");
    REJECTED("\x80\2}(Nu.", "key without a value");
    REJECTED("\x80\2h\0.", "memo slot 0 is empty");
    REJECTED("\x80\2Nr\xff\xff\xff\x7f.", "memo index 2147483647 is out of range");
    REJECTED("\x80\2X\xff\xff\xff\xff.", "a string");
    REJECTED("\x80\2\x8b\xff\xff\xff\xff.", "a number");
    REJECTED("\x80\2\x8a\x09"
             "123456789.",
             "integer of 9 bytes");
    REJECTED("\x80\2N)R.", "the callable must be a class");
    REJECTED("\x80\2ctorch\nSize\nNR.", "the arguments must be a tuple");
    REJECTED("\x80\2NNb.", "an object without state");
    REJECTED("\x80\2I5\n.", "opcode 0x49");
    REJECTED("\x80\2ios\nsystem\n.", "opcode 0x69");
    REJECTED("\x80\1N.", "protocol 1");
    REJECTED("\x80\2cos", "unterminated line");
    REJECTED("\x80\2ccollections\nOrderedDict\n]\x85R.", "OrderedDict with initial items");
}

/* An unknown class, state, appended items, and a call of a call's result. */
TEST(a_pickle_of_any_classes_is_data)
{
    static const char bytes[] = "\x80\2}(X\1\0\0\0acos\nsystem\nX\2\0\0\0id\x85R}bX\1\0\0\0b"
                                "cmy\nList\n)\x81(K\1K\2eX\1\0\0\0ccmy\nmake\n)R)R"
                                "X\1\0\0\0d\x8a\x09"
                                "123456789X\1\0\0\0eK\7u.";
    struct pickle p;
    size_t used;
    CHECK_STATUS(OK,
                 pickle_parse_any(&p, (const unsigned char *)bytes, sizeof bytes - 1, "p", &used));
    const struct pickle_value *a = pickle_get(p.root, "a"), *d = pickle_get(p.root, "d");
    CHECK(a && a->kind == PICKLE_IS_OBJECT && a->class == PICKLE_UNKNOWN && a->count == 2);
    CHECK(pickle_get(p.root, "c")->class == PICKLE_UNKNOWN && d && d->kind == PICKLE_IS_NONE);
    CHECK(pickle_get(p.root, "e")->integer == 7);
    pickle_release(&p);
    for (size_t len = 0; len < sizeof bytes - 1; len++) {
        CHECK_STATUS(DATA, pickle_parse_any(&p, (const unsigned char *)bytes, len, "p", &used));
        pickle_release(&p);
    }
}

TEST(truncated_pickles_are_rejected)
{
    static const char bytes[] = "\x80\2}q\0(X\1\0\0\0aK\7X\1\0\0\0bM\1\2ccollections\nOrderedDict\n"
                                ")Rq\1G\0\0\0\0\0\0\0\0u.";
    struct pickle p;
    CHECK_STATUS(OK, parse(&p, bytes, sizeof bytes - 1));
    pickle_release(&p);
    for (size_t len = 0; len < sizeof bytes - 1; len++) {
        CHECK_STATUS(DATA, parse(&p, bytes, len));
        pickle_release(&p);
    }
}

TEST(a_list_that_contains_itself_is_freed_once)
{
    struct pickle p;
    CHECK_STATUS(OK, parse(&p, "\x80\2]q\0h\0a.", 9));
    CHECK(pickle_item(p.root, 0) == p.root);
    pickle_release(&p);
}

TEST(a_million_nested_tuples_do_not_overflow_the_stack)
{
    struct text t = {0};
    struct pickle p;
    text_adds(&t, "\x80\2)");
    for (int i = 0; i < 1000000; i++) text_adds(&t, "\x85");
    text_adds(&t, ".");
    CHECK_STATUS(OK, parse(&p, t.data, t.len));
    CHECK(p.num_values == 1000001);
    pickle_release(&p);
    text_release(&t);
}
