/** Addresses that only this machine reaches. Apart from the settings: who only connects somewhere need not load their schema. */

/** A name other than `localhost` may be anything. */
export const isLoopback = (host: string): boolean =>
  /^(?:127(?:\.\d{1,3}){3}|::1|\[::1\]|localhost)$/i.test(host) || /^(?:::ffff:127(?:\.\d{1,3}){3})$/i.test(host);
