/** Shells that can be taught the commands. */
export const SHELLS = ['bash', 'zsh', 'fish'] as const;
