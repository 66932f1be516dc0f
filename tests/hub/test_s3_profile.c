// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_profile.h"
#include "test.h"

#include "base/file.h"

static void check_key(const char *ini, const char *profile, const char *key, const char *want)
{
    bool found = false;
    char *value = s3_profile_find(ini, profile, key, &found);
    CHECK(want ? value && !strcmp(value, want) : !value);
    free(value);
}

TEST(s3_profile_finds_keys_of_sections)
{
    static const char ini[] = "key = of no section\n"
                              "[default]\nkey = a\nkey = b\n# key = c\nempty =\n"
                              "[profile p]\r\nkey=d\r\nservices = mine\n"
                              "[services mine]\nsts =\n key = e\ns3 =\n key = f\nkey = g\n"
                              "[profile default x]\nkey = h\n";
    check_key(ini, "default", "key", "b");
    check_key(ini, "p", "key", "d");
    check_key(ini, "p", "services.sts.key", "e");
    check_key(ini, "p", "services.s3.key", "f");
    check_key(ini, "default", "services.s3.key", NULL);
    check_key(ini, "default", "empty", NULL);
    check_key(ini, "q", "key", NULL);
    check_key("", "default", "key", NULL);
}

TEST(s3_profile_prefers_the_environment_then_the_credentials_file)
{
    struct s3_profile p;
    const char *folder = test_folder(), *credentials = test_path(folder, "credentials");
    static const char first[] = "[p]\nkey = a\n", second[] = "[profile p]\nkey = b\nother = c\n";
    CHECK_STATUS(OK, file_write(credentials, first, strlen(first)));
    setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
    const char *config = test_path(folder, "config");
    CHECK_STATUS(OK, file_write(config, second, strlen(second)));
    setenv("AWS_CONFIG_FILE", config, 1);
    unsetenv("AWS_PROFILE");
    setenv("AWS_DEFAULT_PROFILE", "p", 1);
    CHECK_STATUS(OK, s3_profile_read(&p));
    CHECK(p.is_named && s3_profile_exists(&p));
    char *key = s3_profile_key(&p, "key"), *other = s3_profile_key(&p, "other");
    CHECK(!strcmp(key, "a") && !strcmp(other, "c") && !s3_profile_key(&p, "none"));
    free(key), free(other);
    setenv("LLAMERO_TEST_VARIABLE", "d", 1);
    key = s3_profile_setting(&p, "LLAMERO_TEST_VARIABLE", "key");
    unsetenv("LLAMERO_TEST_VARIABLE");
    other = s3_profile_setting(&p, "LLAMERO_TEST_VARIABLE", "key");
    CHECK(!strcmp(key, "d") && !strcmp(other, "a"));
    free(key), free(other);
    s3_profile_release(&p);
    setenv("AWS_PROFILE", "q", 1);
    CHECK_STATUS(OK, s3_profile_read(&p));
    CHECK(p.is_named && !s3_profile_exists(&p));
    s3_profile_release(&p);
    unsetenv("AWS_PROFILE"), unsetenv("AWS_DEFAULT_PROFILE");
    unsetenv("AWS_CONFIG_FILE"), unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}
