# Completion of llamero for fish.  The program itself knows what may follow (src/app/completion.h).
# SPDX-License-Identifier: Apache-2.0

function __llamero_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    type -q -- $program; or set program llamero
    set -l prefix (string match -r '^.*=' -- $current; or echo '')
    set -l path (string replace -r '^.*=' '' -- $current)
    for line in ($program --complete $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case :files
                printf '%s\n' $prefix(__fish_complete_path "$path")
            case :folders
                printf '%s\n' $prefix(__fish_complete_directories "$path")
            case '*'
                printf '%s\n' $line
        end
    end
end

complete -c llamero -f -a '(__llamero_complete)'
