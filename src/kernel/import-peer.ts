/**
 * Imports an optional package from where the program is installed. The name is an argument, so that no bundler looks for a package
 * that most programs do not have.
 */
export const importPeer = (name: string): Promise<unknown> => import(/* webpackIgnore: true */ /* @vite-ignore */ name);
