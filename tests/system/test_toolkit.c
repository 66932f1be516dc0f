/* test_toolkit.c -- how the Makefile finds CUDA and ROCm: `make -n` over a folder that is laid out
 * as AMD's ROCm, with a hipcc that supports gfx90a and gfx942. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

static const char functions[] =
    "unset MAKEFLAGS MFLAGS MAKEOVERRIDES CUDA HIP HIP_ARCH HIPCC NVCC NCCL ROCM_PATH\n"
    "at=$(cd \"$1\" && pwd -P) rocm=$at/rocm\n"
    "dry_run() { make -n B=\"$at/b\" MPI=0 HUB=0 \"$@\" >\"$at/out\" 2>&1; }\n"
    "prints() { grep -qF -e \"$1\" \"$at/out\" || { echo \"not printed: $1\"; exit 1; }; }\n"
    "lacks() { ! grep -F -e \"$1\" \"$at/out\" || exit 1; }\n"
    "mkdir -p \"$rocm/bin\" \"$rocm/include/hip\" \"$rocm/include/rccl\" \"$rocm/lib\"\n"
    "touch \"$rocm/include/hip/hip_runtime.h\"\n"
    "echo '#include <hip/hip_runtime.h>' >\"$rocm/include/rccl/rccl.h\"\n"
    "cat >\"$rocm/bin/hipcc\" <<'END'\n"
    "#!/bin/sh\n"
    "case \"$*\" in *=gfx950*) echo \"clang: error: invalid target ID 'gfx950'\"; exit 1 ;; esac\n"
    "END\n"
    "chmod +x \"$rocm/bin/hipcc\"\n";

/* Fails the test if the script, whose $1 is a new folder, does, and shows what it printed. */
static void check_shell(const char *script)
{
    struct text all = {0}, out = {0};
    text_addf(&all, "%s%s", functions, script);
    int code = test_run((const char *const[]){"sh", "-c", all.data, "sh", test_folder(), NULL},
                        &out, NULL);
    if (code) print_error("%s\n", out.data);
    CHECK(code == 0);
    text_release(&all), text_release(&out);
}

TEST(make_finds_rocm_in_a_folder_of_its_own)
{
    check_shell("check() {\n"
                "    prints \" -isystem $rocm/include \"\n"
                "    prints \" -L$rocm/lib -lamdhip64 \"\n"
                "    prints \" -Wl,-rpath,$rocm/lib\"\n"
                "    prints \"hipcc -x hip -std=c++17 -O3 --offload-arch=gfx90a "
                "--offload-arch=gfx942 -Wall\"\n"
                "    prints \"-DGPU_ARCH='\\\"--offload-arch=gfx90a --offload-arch=gfx942\\\"'\"\n"
                "    prints -DLLAMERO_NCCL=1\n"
                "    lacks gfx950\n"
                "}\n"
                "dry_run HIP=1 ROCM_PATH=\"$rocm\" || exit\n"
                "check\n"
                "dry_run HIP=\"$rocm\" || exit\n"
                "check\n"
                "PATH=$rocm/bin:$PATH\n"
                "dry_run HIP=1 || exit\n"
                "check\n"
                "dry_run HIP=1 HIP_ARCH=--offload-arch=gfx950 || exit\n"
                "prints \"-O3 --offload-arch=gfx950 -Wall\"\n"
                "lacks gfx90a\n");
}

TEST(make_uses_the_folder_of_rocm_that_it_is_given)
{
    check_shell("PATH=$rocm/bin:$PATH\n"
                "! dry_run HIP=\"$at/typo\" ROCM_PATH=\"$rocm\" || exit\n"
                "prints \"HIP=$at/typo: no include/hip/hip_runtime.h in $at/typo; \"\n"
                "! dry_run HIP=\"$rocm\" HIPCC=no-hipcc || exit\n"
                "prints 'HIP=1 requires hipcc on PATH, or HIP=folder of ROCm'\n"
                "! dry_run CUDA=\"$at/typo\" || exit\n"
                "prints 'CUDA=1 requires nvcc on PATH, or CUDA=folder of a toolkit'\n");
}

TEST(make_keeps_the_name_of_rocm_that_updates_leave)
{
    check_shell("ln -s rocm \"$at/latest\"\n"
                "check() {\n"
                "    prints \" -isystem $at/latest/include \"\n"
                "    prints \" -Wl,-rpath,$rocm/lib -Wl,-rpath,$at/latest/lib\"\n"
                "}\n"
                "dry_run HIP=\"$at/latest\" || exit\n"
                "check\n"
                "(PATH=$at/latest/bin:$PATH; dry_run HIP=1) || exit\n"
                "check\n"
                "mkdir \"$at/bin\"\n"
                "ln -s ../rocm/bin/hipcc \"$at/bin/hipcc\"\n"
                "PATH=$at/bin:$PATH\n"
                "dry_run HIP=1 || exit\n"
                "prints \" -isystem $rocm/include \"\n"
                "lacks /latest\n");
}

TEST(make_says_why_it_leaves_out_rccl)
{
    check_shell("echo '#include <missing.h>' >\"$rocm/include/rccl/rccl.h\"\n"
                "dry_run HIP=\"$rocm\" || exit\n"
                "prints 'building without NCCL or RCCL (NCCL=0): '\n"
                "prints '/rccl.h:1:10: fatal error: missing.h: '\n"
                "prints -DLLAMERO_NCCL=0\n"
                "dry_run HIP=\"$rocm\" NCCL=0 || exit\n"
                "lacks 'building without'\n"
                "prints -DLLAMERO_NCCL=0\n"
                "cat >\"$at/cc\" <<'END'\n" /* of a locale that is not installed everywhere */
                "#!/bin/sh\n"
                "out=$(cc \"$@\" 2>&1)\n"
                "code=$?\n"
                "[ \"${LC_ALL:-}\" = C ] || out=$(echo \"$out\" | sed 's/error:/erreur :/')\n"
                "[ $code = 0 ] || exec >&2\n"
                "echo \"$out\"\n"
                "exit $code\n"
                "END\n"
                "chmod +x \"$at/cc\"\n"
                "unset LC_ALL\n"
                "dry_run HIP=\"$rocm\" CC=\"$at/cc\" || exit\n"
                "prints '/rccl.h:1:10: fatal error: missing.h: '\n"
                "prints -DLLAMERO_NCCL=0\n");
}

TEST(make_requires_the_compiler_of_a_gpu)
{
    check_shell("! dry_run HIP=1 HIPCC=no-hipcc || exit\n"
                "prints 'HIP=1 requires hipcc on PATH, or HIP=folder of ROCm'\n"
                "! dry_run CUDA=1 NVCC=no-nvcc || exit\n"
                "prints 'CUDA=1 requires nvcc on PATH, or CUDA=folder of a toolkit'\n");
}
