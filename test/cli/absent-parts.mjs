/** Puts placeholders where a part of the gateway is not there; with all parts there it does nothing. */
import { register } from 'node:module';

register(new URL('./absent-parts-hook.mjs', import.meta.url));
