// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_settings.h"
#include "test.h"

#include "base/file.h"

static void unset_environment(void)
{
    static const char *const names[] = {
        "HF_HOME",  "HF_HUB_CACHE",  "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME",       "HF_ENDPOINT",
        "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",        "TRANSFORMERS_OFFLINE",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void check_cache(const char *want)
{
    struct hub_settings s;
    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.cache, want));
    hub_settings_release(&s);
}

TEST(hub_settings_follow_the_environment)
{
    char *home = getenv("HOME") ? heap_strdup(getenv("HOME")) : NULL;
    const char *folder = test_folder();
    struct hub_settings s;
    unset_environment();
    setenv("HOME", "/h", 1);
    check_cache("/h/.cache/huggingface/hub");
    setenv("XDG_CACHE_HOME", "/x", 1);
    check_cache("/x/huggingface/hub");
    setenv("HF_HOME", folder, 1);
    check_cache(test_path(folder, "hub"));
    setenv("HF_HUB_CACHE", "/cache", 1);
    check_cache("/cache");

    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.endpoint, "https://huggingface.co") && !s.token[0] && !s.offline);
    hub_settings_release(&s);
    CHECK_STATUS(OK, file_write(test_path(folder, "token"), " hf_file \n", 10));
    setenv("HF_ENDPOINT", "https://mirror.example//", 1);
    setenv("HF_HUB_OFFLINE", "True", 1);
    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.endpoint, "https://mirror.example") && s.offline);
    CHECK(!strcmp(s.token, "hf_file") && !strcmp(s.token_from, "$HF_HOME/token"));
    hub_settings_release(&s);
    setenv("HF_TOKEN", "hf_given\n", 1);
    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.token, "hf_given") && !strcmp(s.token_from, "HF_TOKEN"));
    hub_settings_release(&s);
    setenv("HF_TOKEN", "hf\r\nHost: x", 1);
    CHECK_STATUS(DATA, hub_settings_read(&s));
    setenv("HF_TOKEN", "hf_given", 1);
    setenv("HF_ENDPOINT", "mirror.example", 1);
    CHECK_STATUS(OK, hub_settings_read(&s)); /* offline */
    hub_settings_release(&s);
    unsetenv("HF_HUB_OFFLINE");
    CHECK_STATUS(CONFIG, hub_settings_read(&s));
    CHECK_MESSAGE("HF_ENDPOINT=mirror.example: expected http:// or https://");
    unset_environment();
    unsetenv("HOME");
    CHECK_STATUS(CONFIG, hub_settings_read(&s));
    if (home) setenv("HOME", home, 1);
    free(home);
}
