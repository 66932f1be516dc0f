// SPDX-License-Identifier: Apache-2.0
#include "doctor/build.h"
#include "base/json.h"
#include "base/port.h"
#include "base/program.h"
#include "hub/http.h"
#include "machine/cpu.h"
#include "machine/gpu.h"
#include "machine/launch.h"
#include "tokenizer/text/regex.h"

#include <zlib.h>
#include <zstd.h>

void build_add_libraries(struct text *out)
{
    struct text onednn = {0}, pcre2 = {0};
    cpu_machine_onednn_version(&onednn);
    regex_library_version(&pcre2);
    text_addf(out, "oneDNN %s, zlib %s, zstd %s, PCRE2 %s, cJSON %s", onednn.data, zlibVersion(),
              ZSTD_versionString(), pcre2.data, json_library_version());
    text_release(&onednn), text_release(&pcre2);
}

void build_describe(struct text *out)
{
    const char *best = cpu_machine_best_isa();
    text_addf(out, "compiler   %s for %s\n", PORT_COMPILER, PORT_PROCESSOR);
    text_addf(out, "flags      %s\n", BUILD_FLAGS);
    text_addf(out, "ISAs       %s; on this machine: %s\n", BUILD_ISAS, best ? best : "none");
    text_adds(out, "MPI        ");
    if (launch_library())
        launch_add_version(out);
    else
        text_adds(out, "no: built without");
    if (gpu_backend)
        text_addf(out, "\nGPU        %s, %s\n", gpu_backend, BUILD_GPU);
    else
        text_adds(out, "\nGPU        no: built without CUDA=1 or HIP=1\n");
    text_addf(out, "Hub, S3    %s\n",
              http_available() ? http_library_version() : "no: built without libcurl");
    text_adds(out, "libraries  ");
    build_add_libraries(out);
    text_adds(out, "\n");
    program_add_libraries(out);
}
