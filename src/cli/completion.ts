/**
 * Completion for bash, zsh and fish, written from the definitions of the commands themselves. Commands and options are
 * completed, the values of options where they are a choice, files and folders where an option or argument is a path.
 */

import type { Argument, Command, Option } from 'commander';
import type { SHELLS } from './shells.js';

/** What stands in the place of a value. */
type Value =
  | { readonly kind: 'none' }
  | { readonly kind: 'any' | 'file' | 'folder' }
  | { readonly kind: 'choice'; readonly choices: readonly string[] };

/** The script to be evaluated by that shell. */
export function completionScript(shell: (typeof SHELLS)[number], tmaxfs: Command): string {
  switch (shell) {
    case 'bash':
      return bashScript(tmaxfs);
    case 'zsh':
      return zshScript(tmaxfs);
    case 'fish':
      return fishScript(tmaxfs);
  }
}

function bashScript({ commands }: Command): string {
  const names = commands.map((command) => command.name());
  const optionCases = commands.map(
    (command) => `    ${command.name()}) options='${optionsOf(command).map(longOf).join(' ')}' ;;`,
  );
  const valueCases = commands.flatMap((command) =>
    optionsOf(command).flatMap((option) => {
      const value = takenBy(option);
      return value.kind === 'none' ? [] : [`    '${command.name()} ${longOf(option)}') ${bashReply(value)} ;;`];
    }),
  );
  const argumentCases = commands.flatMap((command) => {
    const [argument] = command.registeredArguments;
    return argument === undefined ? [] : [`    ${command.name()}) ${bashReply(takenBy(argument))} ;;`];
  });
  return `# bash completion for tmaxfs:  source <(tmaxfs completion bash)
_tmaxfs() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} command='' options='' word
  # "--option=value" comes as three words.
  if [[ $current == = ]]; then current=''
  elif [[ $previous == = ]]; then previous=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
    if [[ $word != -* ]]; then command=$word; break; fi
  done
  COMPREPLY=()
  if [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W '${names.join(' ')} --help --version' -- "$current")
    return
  fi
  case "$command $previous" in
${valueCases.join('\n')}
  esac
  case $command in
${optionCases.join('\n')}
  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$current")
    return
  fi
  case $command in
${argumentCases.join('\n')}
  esac
}
complete -o filenames -F _tmaxfs tmaxfs
`;
}

function bashReply(value: Value): string {
  const reply = (words: string) => `mapfile -t COMPREPLY < <(compgen ${words} -- "$current"); return`;
  switch (value.kind) {
    case 'choice':
      return reply(`-W '${value.choices.join(' ')}'`);
    case 'folder':
      return reply('-d');
    case 'file':
      return reply('-f');
    default:
      return 'return';
  }
}

function zshScript({ commands }: Command): string {
  const described = commands.map((command) => `    ${zshQuoted(`${command.name()}:${command.description()}`)}`);
  const cases = commands.map((command) => {
    const options = optionsOf(command).map((option) => {
      const value = takenBy(option);
      const words = `${longOf(option)}${value.kind === 'none' ? '' : '='}[${zshText(option.description)}]`;
      return zshQuoted(value.kind === 'none' ? words : `${words}:value:${zshAction(value)}`);
    });
    const [argument] = command.registeredArguments;
    const first = argument === undefined ? [] : [zshQuoted(`1:${argument.name()}:${zshAction(takenBy(argument))}`)];
    return `    ${command.name()}) _arguments ${[...options, ...first, "'--help[say what it takes]'"].join(' ')} ;;`;
  });
  return `#compdef tmaxfs
# zsh completion for tmaxfs:  source <(tmaxfs completion zsh)
_tmaxfs() {
  local -a commands
  commands=(
${described.join('\n')}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT -= 1 ))
  case $command in
${cases.join('\n')}
  esac
}
compdef _tmaxfs tmaxfs
`;
}

function zshAction(value: Value): string {
  switch (value.kind) {
    case 'choice':
      return `(${value.choices.join(' ')})`;
    case 'folder':
      return '_files -/';
    case 'file':
      return '_files';
    default:
      return ' ';
  }
}

/** Within an argument of _arguments, brackets and colons have a meaning. */
function zshText(text: string): string {
  return text.replaceAll(/[[\]:\\]/g, '\\$&');
}

function zshQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function fishScript({ commands }: Command): string {
  const lines = commands.flatMap((command) => {
    const inside = `__fish_seen_subcommand_from ${command.name()}`;
    const [argument] = command.registeredArguments;
    return [
      `complete -c tmaxfs -n __fish_use_subcommand -a ${command.name()} -d ${fishQuoted(command.description())}`,
      ...(argument === undefined ? [] : [`complete -c tmaxfs -n '${inside}' ${fishValue(takenBy(argument))}`]),
      ...optionsOf(command).map((option) => {
        const value = takenBy(option);
        const needs = value.kind === 'none' ? '' : ` ${value.kind === 'file' ? '-r' : '-x'} ${fishValue(value)}`;
        return `complete -c tmaxfs -n '${inside}' -l ${longOf(option).slice(2)}${needs} -d ${fishQuoted(option.description)}`;
      }),
    ];
  });
  return `# fish completion for tmaxfs:  tmaxfs completion fish | source
complete -c tmaxfs -f
${lines.join('\n')}
`;
}

function fishValue(value: Value): string {
  switch (value.kind) {
    case 'choice':
      return `-a '${value.choices.join(' ')}'`;
    case 'folder':
      return "-a '(__fish_complete_directories)'";
    case 'file':
      return '-F';
    default:
      return '';
  }
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
}

/** Those that are shown in the help. */
function optionsOf(command: Command): readonly Option[] {
  return command.options.filter(({ hidden, long }) => !hidden && long !== undefined);
}

function longOf({ long }: Option): string {
  return long ?? '';
}

function takenBy(taker: Option | Argument): Value {
  if (taker.argChoices !== undefined) return { kind: 'choice', choices: taker.argChoices };
  if ('flags' in taker && !taker.required && !taker.optional) return { kind: 'none' };
  const placeholder = 'flags' in taker ? (/[<[]([^>\]]+)/.exec(taker.flags)?.[1] ?? '') : taker.name();
  if (placeholder === 'folder' || placeholder === 'mountpoint') return { kind: 'folder' };
  return { kind: placeholder === 'file' ? 'file' : 'any' };
}
