// SPDX-License-Identifier: Apache-2.0
#include "hub/xml.h"

#include <stdlib.h>
#include <string.h>

void xml_init(struct xml *x, const char *bytes, size_t len, const char *what)
{
    *x = (struct xml){.begin = bytes, .at = bytes, .end = bytes + len, .what = what};
    text_adds(&x->path, "");
    text_adds(&x->text, "");
}

void xml_release(struct xml *x)
{
    text_release(&x->path);
    text_release(&x->text);
}

static enum status fail_at(const struct xml *x, const char *problem)
{
    FAIL(DATA, "%s: XML: %s at byte %zu", x->what, problem, (size_t)(x->at - x->begin));
}

static bool begins_with(const struct xml *x, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(x->end - x->at) >= n && !memcmp(x->at, text, n);
}

/* Skips past the next occurrence of `text`; *from is where it was searched. */
static enum status skip_past(struct xml *x, const char *text)
{
    const char *found = memmem(x->at, (size_t)(x->end - x->at), text, strlen(text));
    if (!found) return fail_at(x, "the document ends early");
    x->at = found + strlen(text);
    return STATUS_OK;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void skip_space(struct xml *x)
{
    while (x->at < x->end && is_space(*x->at)) x->at++;
}

/* Length of the name at `at`; 0: none.  Bytes beyond ASCII are accepted as they are. */
static size_t name_length(const struct xml *x)
{
    static const char other[] = "_-.:";
    size_t n = 0;
    for (const char *at = x->at; at < x->end; at++, n++) {
        char c = *at;
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c > 127;
        bool later = (c >= '0' && c <= '9') || c == '-' || c == '.';
        if (!letter && !(c && strchr(other, c)) && !later) break;
        if (!n && later) break;
    }
    return n;
}

/* Whether XML 1.0 allows the character. */
static bool is_character(unsigned long code)
{
    if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
    return code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) && code != 0xfffe &&
           code != 0xffff;
}

static enum status add_reference(struct xml *x)
{
    static const struct {
        const char *name, *text;
    } entities[] = {
        {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        if (!begins_with(x, entities[i].name)) continue;
        text_adds(&x->text, entities[i].text);
        x->at += strlen(entities[i].name);
        return STATUS_OK;
    }
    if (!begins_with(x, "&#")) return fail_at(x, "an unknown entity");
    char digits[12] = "";
    const char *from = x->at + 2, *semicolon = memchr(x->at, ';', (size_t)(x->end - x->at));
    bool hex = from < x->end && *from == 'x';
    from += hex;
    if (!semicolon || semicolon <= from || semicolon - from > 8)
        return fail_at(x, "an invalid character reference");
    memcpy(digits, from, (size_t)(semicolon - from));
    unsigned long code = strtoul(digits, NULL, hex ? 16 : 10);
    bool valid = strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789") == strlen(digits);
    if (!valid || !is_character(code)) return fail_at(x, "an invalid character reference");
    text_add_utf8(&x->text, (uint32_t)code);
    x->at = semicolon + 1;
    return STATUS_OK;
}

/* Text up to the next markup. */
static enum status read_text(struct xml *x)
{
    while (x->at < x->end && *x->at != '<') {
        if (*x->at == '&') {
            TRY(add_reference(x));
            continue;
        }
        const char *from = x->at;
        while (x->at < x->end && *x->at != '<' && *x->at != '&') {
            size_t n =
                text_utf8_length((const unsigned char *)x->at, (const unsigned char *)x->end);
            if (!n || (n == 1 && !is_character((unsigned char)*x->at)))
                return fail_at(x, "an invalid character");
            x->at += n;
        }
        text_add(&x->text, from, (size_t)(x->at - from));
        for (const char *at = from; at < x->at && !x->depth; at++)
            if (!is_space(*at)) return fail_at(x, "text outside the root element");
    }
    return STATUS_OK;
}

static enum status read_cdata(struct xml *x)
{
    if (!x->depth) return fail_at(x, "text outside the root element");
    x->at += strlen("<![CDATA[");
    const char *from = x->at;
    TRY(skip_past(x, "]]>"));
    size_t n = (size_t)(x->at - from) - 3;
    if (!text_is_utf8(from, n) || memchr(from, 0, n)) return fail_at(x, "an invalid character");
    text_add(&x->text, from, n);
    return STATUS_OK;
}

static enum status skip_attributes(struct xml *x)
{
    for (;;) {
        skip_space(x);
        size_t n = name_length(x);
        if (!n) return STATUS_OK;
        x->at += n;
        skip_space(x);
        if (x->at == x->end || *x->at != '=') return fail_at(x, "an attribute without a value");
        x->at++;
        skip_space(x);
        if (x->at == x->end || (*x->at != '"' && *x->at != '\''))
            return fail_at(x, "an attribute's value without quotes");
        const char quote[] = {*x->at++, 0};
        TRY(skip_past(x, quote));
    }
}

static enum status read_start(struct xml *x)
{
    x->at++;
    size_t n = name_length(x);
    if (!n) return fail_at(x, "an invalid name");
    if (!x->depth && x->has_root) return fail_at(x, "a second root element");
    if (x->depth == XML_MAX_DEPTH) return fail_at(x, "elements nested too deeply");
    text_adds(&x->path, "/");
    text_add(&x->path, x->at, n);
    x->at += n;
    x->depth++;
    x->has_root = x->is_leaf = true;
    TRY(skip_attributes(x));
    x->is_empty = begins_with(x, "/>");
    if (!x->is_empty && !begins_with(x, ">")) return fail_at(x, "an unfinished tag");
    x->at += x->is_empty ? 2 : 1;
    text_clear(&x->text);
    x->event = XML_START;
    return STATUS_OK;
}

static enum status read_end(struct xml *x)
{
    x->at += 2;
    size_t n = name_length(x);
    const char *open = strrchr(x->path.data, '/');
    if (!x->depth || strlen(open + 1) != n || memcmp(open + 1, x->at, n))
        return fail_at(x, "an end tag that does not match");
    x->at += n;
    skip_space(x);
    if (!begins_with(x, ">")) return fail_at(x, "an unfinished tag");
    x->at++;
    x->event = XML_END;
    return STATUS_OK;
}

/* Closes the element whose end was reported before. */
static void leave_element(struct xml *x)
{
    x->path.len = (size_t)(strrchr(x->path.data, '/') - x->path.data);
    x->path.data[x->path.len] = 0;
    x->depth--;
    x->is_leaf = false;
    text_clear(&x->text);
}

enum status xml_next(struct xml *x)
{
    if (x->ends_element) leave_element(x);
    x->ends_element = x->is_empty;
    if (x->is_empty) {
        x->is_empty = false;
        x->event = XML_END;
        return STATUS_OK;
    }
    for (;;) {
        TRY(read_text(x));
        if (x->at == x->end) {
            if (x->depth || !x->has_root) return fail_at(x, "the document ends early");
            x->event = XML_EOF;
            return STATUS_OK;
        }
        if (begins_with(x, "<?"))
            TRY(skip_past(x, "?>"));
        else if (begins_with(x, "<!--"))
            TRY(skip_past(x, "-->"));
        else if (begins_with(x, "<![CDATA["))
            TRY(read_cdata(x));
        else if (begins_with(x, "<!"))
            return fail_at(x, "an unsupported declaration");
        else if (!begins_with(x, "</"))
            return read_start(x);
        else
            break;
    }
    TRY(read_end(x));
    x->ends_element = true;
    return STATUS_OK;
}

bool xml_is_leaf(const struct xml *x, const char *path)
{
    return x->event == XML_END && x->is_leaf && !strcmp(x->path.data, path);
}

void xml_copy_leaf(const struct xml *x, const char *path, struct text *to)
{
    if (!xml_is_leaf(x, path)) return;
    text_clear(to);
    text_add(to, x->text.data, x->text.len);
}

void xml_escape(struct text *t, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '&'    ? "&amp;"
                             : *text == '<'  ? "&lt;"
                             : *text == '>'  ? "&gt;"
                             : *text == '"'  ? "&quot;"
                             : *text == '\'' ? "&apos;"
                                             : NULL;
        if (entity)
            text_adds(t, entity);
        else
            text_add(t, text, 1);
    }
}
