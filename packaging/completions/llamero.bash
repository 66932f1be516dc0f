# Completion of llamero for bash.  The program itself knows what may follow (src/app/completion.h).
# SPDX-License-Identifier: Apache-2.0

_llamero() {
    local program=${COMP_WORDS[0]} line=${COMP_LINE:0:COMP_POINT} words=() i word rest cur
    local prefix= paths= IFS=$'\n'
    # Readline splits words at '=' and ':': join those without a blank in between.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:blank:]]*}"}
        ((i < COMP_CWORD)) || word=${rest:0:${#word}}
        if ((i > 0)) && [[ $rest == "$line" && -n $line ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        line=${rest#"$word"}
    done
    cur=${words[${#words[@]} - 1]}
    ((${#words[@]} > 1)) || return
    [[ $cur != *=* || $COMP_WORDBREAKS != *=* ]] || prefix=${cur%"${cur##*=}"}
    # shellcheck disable=SC2088 # the tilde is still in the word, as it was typed
    [[ $program != "~/"* ]] || program=$HOME/${program#"~/"}
    type -P -- "$program" >/dev/null || program=llamero

    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        case $word in
        :files)
            paths=1
            COMPREPLY+=($(compgen -f -- "${cur##*=}"))
            ;;
        :folders)
            paths=1
            COMPREPLY+=($(compgen -d -- "${cur##*=}"))
            ;;
        *) COMPREPLY+=("${word#"$prefix"}") ;;
        esac
    done < <("$program" --complete "${words[@]:1}" 2>/dev/null)
    # Readline would quote the '=' of a key as part of a file's name.
    [[ -z $paths || ${COMPREPLY[*]} == *=* ]] || compopt -o filenames 2>/dev/null
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[.=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -F _llamero llamero
