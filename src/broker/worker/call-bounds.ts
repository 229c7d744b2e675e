/** What calls under way may cost a worker. */
export const callsMax = 1_024;
export const callBytesMax = 64 * 1024 * 1024;
