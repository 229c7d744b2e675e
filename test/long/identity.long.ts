/**
 * At full counts: eight processes share one grant for 10,000 generations, processes are killed during a refresh, calls are under way while
 * the token expires, and logins are attacked.
 */
import '../identity/login.test.js';
import '../identity/login-command.test.js';
import '../identity/renewal.test.js';
import '../identity/shared-grant.test.js';
