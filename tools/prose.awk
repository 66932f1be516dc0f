# SPDX-License-Identifier: Apache-2.0
# prose.awk -- definitions and quotations of the GCIDE dictionary, one per line, without markup.
BEGIN { RS = ""; FS = "\n" }
/^   [0-9]+\. / || /^      +[A-Z"]/ {
    gsub(/\n +/, " ")
    gsub(/ --.*| *\[[^]]*\]|\([^)]*\) ?|[{}]/, "")
    sub(/^ +([0-9]+\. )?/, "")
    if (/^[A-Z][-A-Za-z ,;:.'?!]+[.?!]$/ && length > 30) print
}
