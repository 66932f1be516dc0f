// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/isa.h"

#include "backends/cpu/cpu.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* The Makefile defines CPU_ISAS from its ISAS, weakest first: X(avx2) X(avx512) X(amx), or
 * X(generic).  avx2: x86-64-v3.  avx512: x86-64-v4, with bf16 dot products where the processor has
 * them.  amx: AMX bf16 tiles in addition to avx512. */
#define X(name) extern const struct isa name##_isa;
CPU_ISAS(X)
#undef X

const struct isa *isa_at(int i)
{
    static const struct isa *const isas[] = {
#define X(name) &name##_isa,
        CPU_ISAS(X)
#undef X
            NULL};
    return i < (int)(sizeof isas / sizeof *isas) ? isas[i] : NULL;
}

/* Unused if ISAS leaves the ISA out. */
#if defined(__x86_64__)
__attribute__((unused)) static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

__attribute__((unused)) static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/* Intel's manual, volume 1, chapter 18: CPUID (7, 0) EDX bits 22 and 24.  Linux grants the 8 KiB of
 * tile state only to processes that request permission. */
__attribute__((unused)) static bool has_amx(void)
{
    enum { AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24 };
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned a, b, c, d;
    return has_avx512() && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vbmi") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           d & AMX_BF16 && d & AMX_TILE &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static bool has_generic(void) { return true; }
#endif

bool isa_is_supported(const struct isa *s)
{
#define X(isa)                                                                                     \
    if (!strcmp(s->name, #isa)) return has_##isa();
    CPU_ISAS(X)
#undef X
    return false;
}

const struct isa *isa_best(void)
{
    const struct isa *best = NULL;
    for (int i = 0; isa_at(i); i++)
        if (isa_is_supported(isa_at(i))) best = isa_at(i);
    return best;
}

const struct isa *isa_of_ops(const struct ops *ops)
{
    for (int i = 0; isa_at(i); i++)
        if (&isa_at(i)->ops == ops) return isa_at(i);
    return isa_best();
}

enum status cpu_ops_find(const char *name, const struct ops **out)
{
    const struct isa *best = isa_best();
    bool is_auto = !strcmp(name, "auto");
    if (!strcmp(name, "reference") || (is_auto && !best)) {
        *out = &ops_cpu_reference;
        return STATUS_OK;
    }
    for (int i = 0; isa_at(i); i++) {
        const struct isa *s = isa_at(i);
        if (!(is_auto ? s == best : !strcmp(s->name, name))) continue;
        if (!isa_is_supported(s))
            FAIL(UNSUPPORTED,
                 "device.cpu = \"%s\": not supported by this processor; the best supported is "
                 "\"%s\"",
                 name, best ? best->name : "reference");
        *out = &s->ops;
        return STATUS_OK;
    }
    FAIL(UNSUPPORTED, "device.cpu = \"%s\": unknown, or not in this build", name);
}
