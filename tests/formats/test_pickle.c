// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"
#include "test.h"

static enum status parse(struct pickle *p, const char *bytes, size_t len)
{
    size_t used;
    return pickle_parse(p, (const unsigned char *)bytes, len, "x.pkl", &used);
}

static void check_refused(const char *bytes, size_t len, const char *why)
{
    struct pickle p;
    CHECK_STATUS(DATA, parse(&p, bytes, len));
    CHECK_MESSAGE("x.pkl");
    CHECK_MESSAGE(why);
    pickle_release(&p);
}
#define REFUSED(bytes, why) check_refused("" bytes, sizeof bytes - 1, why)

TEST(a_pickle_is_the_values_it_would_build)
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
    CHECK(pickle_integers(pickle_get(p.root, "f"), 2, both) == 2 && both[0] == 1 && both[1] == 2);
    CHECK(pickle_integers(pickle_get(p.root, "f"), 1, both) == -1);
    CHECK(!pickle_get(p.root, "g") && !pickle_item(list, 3) && !pickle_item(NULL, 0));
    CHECK(pickle_integers(list, 3, both) == -1);
    pickle_release(&p);
}

TEST(an_object_of_a_known_class_shows_what_it_was_made_of)
{
    static const char bytes[] = "\x80\4\x8c\x22torch.distributed.checkpoint.other\x8c\x0d"
                                "MetadataIndex\x93)\x81}(X\3\0\0\0fqnX\1\0\0\0wub.";
    struct pickle p;
    CHECK_STATUS(OK, parse(&p, bytes, sizeof bytes - 1));
    CHECK(pickle_is_text(pickle_field(p.root, PICKLE_METADATA_INDEX, "fqn"), "w"));
    CHECK(!pickle_field(p.root, PICKLE_METADATA, "fqn"));
    pickle_release(&p);
    static const char sizes[] = "\x80\2ctorch\nSize\nK\2K\3\x86\x85R.";
    int64_t both[2];
    CHECK_STATUS(OK, parse(&p, sizes, sizeof sizes - 1));
    CHECK(pickle_integers(p.root, 2, both) == 2 && both[1] == 3);
    pickle_release(&p);
}

TEST(a_pickle_that_names_anything_else_is_refused_by_that_name)
{
    REFUSED("\x80\2cos\nsystem\nX\2\0\0\0id\x85R.", "it names os.system");
    REFUSED("\x80\2cposix\nsystem\n.", "it names posix.system");
    REFUSED("\x80\2cbuiltins\neval\n.", "it names builtins.eval");
    REFUSED("\x80\2ctorch.hub\nload\n.", "it names torch.hub.load");
    REFUSED("\x80\2ctorchx\nSize\n.", "it names torchx.Size");
    REFUSED("\x80\4\x8c\2os\x8c\6system\x93.", "it names os.system");
    REFUSED("\x80\2cbuiltins\nexec\n.", "builtins.exec");
}

TEST(a_pickle_that_breaks_the_machines_rules_is_refused_with_its_place)
{
    REFUSED("\x80\2.", "leaves 0 values");
    REFUSED("\x80\2NN.", "leaves 2 values");
    REFUSED("\x80\2t.", "no mark");
    REFUSED("\x80\2(N\x86.", "at byte 4: too few values");
    REFUSED("\x80\2\x85.", "too few values");
    REFUSED("\x80\2NNa.", "takes none");
    REFUSED("\x80\2}(Nu.", "a key without a value");
    REFUSED("\x80\2h\0.", "nothing at place 0");
    REFUSED("\x80\2Nr\xff\xff\xff\x7f.", "place 2147483647 of the memo");
    REFUSED("\x80\2X\xff\xff\xff\xff.", "a text");
    REFUSED("\x80\2\x8b\xff\xff\xff\xff.", "a number");
    REFUSED("\x80\2\x8a\x09"
            "123456789.",
            "a whole number of 9 bytes");
    REFUSED("\x80\2N)R.", "a call of what is no class");
    REFUSED("\x80\2ctorch\nSize\nNR.", "without a tuple");
    REFUSED("\x80\2NNb.", "a state for what has none");
    REFUSED("\x80\2I5\n.", "the opcode 0x49");
    REFUSED("\x80\2ios\nsystem\n.", "the opcode 0x69");
    REFUSED("\x80\1N.", "protocol 1");
    REFUSED("\x80\2cos", "does not end");
    REFUSED("\x80\2ccollections\nOrderedDict\n]\x85R.", "begins with something");
}

TEST(a_pickle_cut_off_at_any_byte_is_refused)
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

TEST(a_list_that_holds_itself_is_freed_once)
{
    struct pickle p;
    CHECK_STATUS(OK, parse(&p, "\x80\2]q\0h\0a.", 9));
    CHECK(pickle_item(p.root, 0) == p.root);
    pickle_release(&p);
}

TEST(a_million_nested_tuples_need_no_stack)
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
