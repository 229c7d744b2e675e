/**
 * Imports an optional peer package. The name is an argument, so that a bundler does not fail where the package is not installed.
 */
export const importPeer = (name: string): Promise<unknown> => import(/* webpackIgnore: true */ /* @vite-ignore */ name);
