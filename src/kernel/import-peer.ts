/** Imports an optional peer package. The name is an argument, so that a bundler does not fail if the package is missing. */
export const importPeer = (name: string): Promise<unknown> => import(/* webpackIgnore: true */ /* @vite-ignore */ name);
