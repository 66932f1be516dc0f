// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include "base/file_sample.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t n) { return (n + 3) & ~(size_t)3; }

/* Appends the build ID if the notes in memory have one. */
static bool add_id_of_notes(const char *at, size_t len, struct text *out)
{
    while (len >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        at += sizeof note, len -= sizeof note;
        size_t name = aligned(note.n_namesz), id = aligned(note.n_descsz);
        if (name > len || id > len - name) return false;
        bool found = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(at, "GNU", 4);
        for (size_t i = 0; found && i < note.n_descsz; i++)
            text_addf(out, "%02x", (unsigned)(unsigned char)at[name + i]);
        if (found) return true;
        at += name + id, len -= name + id;
    }
    return false;
}

/* The first object of the process is the program; the others are libraries. */
static int add_id_of_object(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &object->dlpi_phdr[i];
        if (p->p_type != PT_NOTE) continue;
        const char *notes = (const char *)(uintptr_t)(object->dlpi_addr + p->p_vaddr);
        if (add_id_of_notes(notes, p->p_memsz, context)) break;
    }
    return 1;
}

/* Whether the program itself, not one of its libraries, names that library. */
static bool is_needed(const char *name)
{
    const char *strings = NULL;
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB) strings = (const char *)(uintptr_t)d->d_un.d_ptr;
    for (const ElfW(Dyn) *d = _DYNAMIC; strings && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED && !strcmp(strings + d->d_un.d_val, name)) return true;
    return false;
}

static int add_library(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    const char *slash = strrchr(object->dlpi_name, '/');
    char *path = slash && is_needed(slash + 1) ? realpath(object->dlpi_name, NULL) : NULL;
    if (path) text_addf(context, "           %s\n", path);
    free(path);
    return 0;
}

void program_add_libraries(struct text *out) { dl_iterate_phdr(add_library, out); }

void program_add_build(struct text *out)
{
    uint64_t hash;
    int64_t bytes;
    size_t begin = out->len;
    dl_iterate_phdr(add_id_of_object, out);
    if (out->len > begin) return;
    if (file_sample_hash_whole("/proc/self/exe", &hash, &bytes))
        text_adds(out, "unknown");
    else
        text_addf(out, "%016llx", (unsigned long long)hash);
}
