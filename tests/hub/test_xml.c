// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "hub/xml.h"

/* All leaves as "path=text\n". */
static enum status leaves(const char *xml, struct text *out)
{
    struct xml x;
    enum status st = STATUS_OK;
    text_clear(out);
    text_adds(out, "");
    xml_init(&x, xml, strlen(xml), "answer");
    do {
        TRY_OUT(xml_next(&x));
        if (x.event == XML_END && x.is_leaf) text_addf(out, "%s=%s\n", x.path.data, x.text.data);
    } while (x.event != XML_EOF);
out:
    xml_release(&x);
    return st;
}

TEST(xml_reads_elements_text_and_references)
{
    struct text t = {0};
    CHECK_STATUS(OK, leaves("<?xml version=\"1.0\"?>\n<!-- a > b -->\n<a x='1' y=\"<2>\">"
                            " <b>1 &lt; 2 &amp; &#65;&#x20AC;&quot;&apos;&gt;</b><c/>"
                            "<b><![CDATA[<x>&amp;]]> end</b ><d><e/></d></a>\n",
                            &t));
    CHECK(!strcmp(t.data, "/a/b=1 < 2 & A\xe2\x82\xac\"'>\n/a/c=\n/a/b=<x>&amp; end\n/a/d/e=\n"));
    CHECK_STATUS(OK, leaves("<a/>", &t));
    CHECK(!strcmp(t.data, "/a=\n"));
    text_release(&t);
}

TEST(xml_rejects_malformed_documents)
{
    static const char *const bad[] = {
        "",
        "text",
        "<a>",
        "<a></b>",
        "<a></a><b/>",
        "</a>",
        "<a",
        "<a x>1</a>",
        "<a x=1/>",
        "<a x='1/>",
        "<1/>",
        "<a>&none;</a>",
        "<a>&#;</a>",
        "<a>&#0;</a>",
        "<a>&#xD800;</a>",
        "<a>&#x110000;</a>",
        "<a>&#999999999;</a>",
        "<a>\x01</a>",
        "<a>\xff</a>",
        "<a><![CDATA[x</a>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
        "<a><!-- </a>",
        "<a/>x",
        "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
    };
    struct text t = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!leaves(bad[i], &t)) fail_msg("accepted: %s", bad[i]);
        CHECK_MESSAGE("answer: XML: ");
    }
    text_release(&t);
}

TEST(xml_rejects_every_truncation)
{
    static const char good[] =
        "<?xml version='1.0'?><a b='c'><!--d--><e>&amp;<![CDATA[f]]></e></a>";
    struct text t = {0};
    CHECK_STATUS(OK, leaves(good, &t));
    for (size_t n = 0; n < sizeof good - 1; n++) {
        char *part = heap_string(good, n);
        CHECK_STATUS(DATA, leaves(part, &t));
        free(part);
    }
    text_release(&t);
}

TEST(xml_escape_can_be_read_back)
{
    struct text xml = {0}, t = {0};
    text_adds(&xml, "<a>");
    xml_escape(&xml, "<\"it's\" & so>");
    text_adds(&xml, "</a>");
    CHECK_STATUS(OK, leaves(xml.data, &t));
    CHECK(!strcmp(t.data, "/a=<\"it's\" & so>\n"));
    text_release(&xml);
    text_release(&t);
}
