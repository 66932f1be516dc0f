// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_parse.h"

static enum status parse_script(struct shell *s, const char *script)
{
    shell_init(s, "x.sh", (struct shell_files){0});
    return shell_parse(s, script, strlen(script), 1);
}

TEST(variables_get_the_values_that_bash_gives_them)
{
    /* the script and the value of X after it; bash agrees, but forgets what a subshell set */
    static const char *const cases[][2] = {
        {"X=a", "a"},
        {"X='a b'\"c\"d", "a bcd"},
        {"A=1; X=$A$A", "11"},
        {"A=1; X=\"$A-${A}\"", "1-1"},
        {"A='x'; X='$A'", "$A"},
        {"X=a\\ b", "a b"},
        {"X=\"a\\\"b\"", "a\"b"},
        {"X=a\\\nb", "ab"},
        {"X=${A:-d}", "d"},
        {"A=; X=${A:-d}${A-e}", "d"},
        {"A=; X=${A:+d}${A+e}", "e"},
        {"A=v; X=${A:+d}${A+e}${B:+f}", "de"},
        {"X=${A:=d}; X=$X$A", "dd"},
        {"X=\"${A:-'q'}\"", "'q'"},
        {"X=${A:-'q'}", "q"},
        {"A=abcdef; X=${A:2}${A:1:2}${#A}", "cdefbc6"},
        {"A=ab; N=1; X=${A:$N+0}", "b"},
        {"X=$((2 + 3 * 4 - -1))", "15"},
        {"A=7; X=$(( (A + 1) / ${A} % 3 ))", "1"},
        {"A=(a 'b c' d); X=${#A[@]}${A[1]}${A}", "3b ca"},
        {"A=(a); A+=(b \"${A[@]}\"); X=\"${A[*]}\"", "a b a"},
        {"A=x; A+=y; X=$A", "xy"},
        {"export X=1 Y=2; X=$X$Y", "12"},
        {"Y=3 X=4", "4"},
        {"X=1; unset X; X=${X-gone}", "gone"},
        {"if [ 1 -eq 1 ]; then X=y; else X=n; fi", "y"},
        {"if [ a = b ]; then X=1; elif [[ a == a && b != c ]]; then X=2; else X=3; fi", "2"},
        {"if ! [ -z \"\" ] || [ 3 -gt 2 ]; then X=y; fi", "y"},
        {"if [ -n \"$A\" ]; then X=y; else X=n; fi", "n"},
        {"if [ -z ${A+x} ]; then X=unset; fi", "unset"},
        {"A=; if [ -z ${A+x} ]; then X=unset; else X=set; fi", "set"},
        {"X=n; [ 2 -le 3 ] && X=y || X=z", "y"},
        {"X=n; [ 2 -lt 2 ] && X=y || X=z", "z"},
        {"case abc in x | a*) X=1 ;; *) X=2 ;; esac", "1"},
        {"case q in (a) X=1 ;; *) X=2 ;; esac", "2"},
        {"X=; for i in a 'b c' d; do X=$X$i,; done", "a,b c,d,"},
        {"X=; for i in 1 2 3; do if [ $i -eq 2 ]; then break; fi; X=$X$i; done", "1"},
        {"X=; for i in 1 2 3; do [ $i -eq 2 ] && continue; X=$X$i; done", "13"},
        {"X=0; for i in \"$@\"; do X=1; done", "0"},
        {"W='a b'; A=($W \"$W\"); X=${#A[@]}", "3"},
        {"A=(); B=(x \"${A[@]}\" y); X=${#B[@]}", "2"},
        {"eval 'X=5'", "5"},
        {"C=\"X=6 \\\n\"; eval $C", "6"},
        {"bash -c 'X=7; Y=8'", "7"},
        {"{ X=1; }; ( Y=2 ); X=$X$Y", "12"},
        {"cat <<EOF\nX=bad\nEOF\nX=good", "good"},
        {"cat <<-'EOF' > f\n\tX=bad\n\tEOF\nX=good # X=no", "good"},
        {"X=1 # c\n#X=2\n", "1"},
        {"X=a#b", "a#b"},
        {"echo a | X=2\nX=${X:-1}", "1"},
        {"X=1; exit 0; X=2", "1"},
        {"X=1; false && X=2; true || X=3", "1"},
        {"while read l; do X=1; done < f; X=${X:-none}", "none"},
        {"f() { X=bad; }; X=${X:-ok}", "ok"},
        {"function f { X=bad; }\nX=${X:-ok}", "ok"},
        {"X=$? ; X=$X$#", "00"},
        {"set -- a b; X=$1x", "x"},
        {"X=\"a $(b \"c d\" ')' ) e\"", "a $(b...) e"},
        {"X=`date +\"%Y\"`", "$(date...)"},
        {"X=\"$HOME/x\"", "${HOME}/x"},
        {"false; X=$?; [ a = b ]; X=$X${?}$?", "111"},
        {"false; true; X=$?", "0"},
        {"[ $(a) = b ]; X=$?", "$(status...)"},
        {"A=$(nproc); X=$((A * 2))", "$(A...)"},
        {"A=$(a) B=$(b); C=\"X=$((A * B))\"; eval $C", "$(A,B...)"},
        {"A=$(a) B=$(b); C=$((A * B)); X=$((2 * $C * B))", "$(A,B...)"},
        {"X=\"$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\"", "$(cd...)"},
        {"python - <<PYEOF\nprint(\"'\", 1\nPYEOF\nX=after", "after"},
        {"set -euo pipefail\nX=(${NONE}); X=${#X[@]}", "0"},
        {"A=$(x); if [ $A -eq 1 ]; then X=1; else X=2; fi", "2"},
        {"if [ -f nothing ]; then X=there; fi", "there"},
        {"if grep -q a b; then X=1; fi", "1"},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shell s;
        enum status st = parse_script(&s, cases[i][0]);
        const char *x = st ? status_message() : shell_get(&s, "X");
        bool fine = !st && x && !strcmp(x, cases[i][1]);
        if (!fine) print_error("%s gave: %s\n", cases[i][0], x ? x : "nothing");
        failures += !fine;
        shell_release(&s);
    }
    CHECK(!failures);
}

TEST(the_training_command_and_its_launcher_are_found)
{
    struct shell s;
    CHECK_STATUS(OK, parse_script(&s, "A=(--x 1)\nARGS=\"--y 'a b' \\\n --z\"\n"
                                      "run=\"torchrun --nnodes 2 pretrain_gpt.py $ARGS\"\n"
                                      "run=\"$run |& tee log\"\neval $run"));
    CHECK(s.command.count == 3 && !strcmp(s.command.items[1], "a b") && s.command_line == 6);
    CHECK(s.launcher.count == 3 && !strcmp(s.launcher.items[2], "2"));
    shell_release(&s);
    CHECK_STATUS(OK, parse_script(&s, "A=(\n --x 1 # one\n '--y 2'\n)\n"
                                      "python m/pretrain_gpt.py ${A[@]} \"${A[@]}\" 2>&1 > f\n"
                                      "python pretrain_gpt.py --other\n"));
    CHECK(s.command.count == 7 && s.command_line == 5 && s.num_notes == 1);
    CHECK(!strcmp(s.command.items[3], "2") && !strcmp(s.command.items[6], "--y 2"));
    shell_release(&s);
}

TEST(syntax_errors_and_exceeded_limits_are_rejected)
{
    struct text deep = {0}, wide = {0}, not = {0}, functions = {0}, test = {0}, sums = {0},
                names = {0}, many = {0}, arrays = {0}, exports = {0};
    for (int i = 0; i < 300; i++) text_adds(&deep, "if true; then ");
    for (int i = 0; i < 100000; i++) {
        text_adds(&not, "! ");
        text_adds(&functions, "f() ");
        if (i < 1000) text_adds(&test, i ? "-o a " : "[ ");
        if (i < 1000) text_adds(&sums, i ? "-" : "X=$((");
        text_addf(&names, "A%d=\n", i);
        text_addf(&arrays, "A%d=()\n", i);
        if (i < 10000) text_addf(&exports, "%s A%d=", i ? "" : "export", i);
    }
    text_adds(&exports, "\nX=1");
    text_adds(&test, "]");
    text_adds(&sums, "1))");
    text_adds(&wide, "A=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n");
    for (int i = 0; i < 20; i++) text_adds(&wide, "A=$A$A\n");
    text_adds(&many, "A=aaaaaaaaaaaaaaaa\n");
    for (int i = 0; i < 11; i++) text_adds(&many, "A=$A$A\n");
    text_adds(&many, "echo");
    for (int i = 0; i < 5000; i++) text_adds(&many, " $A");
    const char *const cases[][2] = {
        {"X='a", "x.sh:1: unclosed '"},
        {"X=\"a", "x.sh:1: unclosed \""},
        {"X=$(a", "unclosed"},
        {"X=${a", "unclosed"},
        {"if true; then X=1", "expected \"fi\""},
        {"if true; X=1; fi", "expected \"then\", got \"fi\""},
        {"fi", "unexpected \"fi\""},
        {"for x in a; X=1; done", "expected \"do\""},
        {"for 1 in a; do X=1; done", "for: expected a name"},
        {"case a in b X=1 ;; esac", "expected a pattern and )"},
        {"case a in a) X=1", "expected \"esac\""},
        {"A=(a b", "A=(: missing )"},
        {"[ 1 -eq 1", "[: missing ]"},
        {"[[ 1 -eq 1", "[[: missing ]]"},
        {"( X=1", "(: missing )"},
        {"X=$((1 / 0))", "division by 0"},
        {"X=$((1 +))", "expected a number or a name"},
        {"X=$((9223372036854775807 + 1))", "overflow"},
        {"X=$((1 2))", "syntax error at \"2\""},
        {"A=x; X=$((A))", "not a whole number"},
        {"X=${A:?wanted}", "A is not set; set it with A=VALUE"},
        {"echo a >", "expected a file"},
        {"eval eval eval eval eval eval eval eval eval eval X=1", "scripts nested more than"},
        {"X=1 )", "unexpected \")"},
        {"&& X=1", "syntax error"},
        {deep.data, "nested too deeply"},
        {not .data, "nested too deeply"},
        {functions.data, "nested too deeply"},
        {test.data, "condition longer than"},
        {sums.data, "nested too deeply"},
        {names.data, "more than 4096 variables"},
        {arrays.data, "more than 4096 variables"},
        {exports.data, "x.sh:2: more than 4096 variables"},
        {wide.data, "value longer than 65536"},
        {many.data, "exceed 67108864 bytes in total"},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shell s;
        enum status st = parse_script(&s, cases[i][0]);
        bool fine = st == STATUS_CONFIG && strstr(status_message(), cases[i][1]);
        if (!fine) print_error("%.60s gave: %s\n", cases[i][0], st ? status_message() : "no error");
        failures += !fine;
        shell_release(&s);
    }
    CHECK(!failures);
    text_release(&deep), text_release(&wide), text_release(&not );
    text_release(&functions), text_release(&test), text_release(&sums), text_release(&names);
    text_release(&arrays), text_release(&exports);
    text_release(&many);
}
