const placeholder = new URL('./placeholder-gateway.mjs', import.meta.url).href;

export async function resolve(specifier, context, next) {
  if (!context.parentURL?.endsWith('/gateway/gateway-parts.js')) return next(specifier, context);
  const { existsSync } = await import('node:fs');
  const wanted = new URL(specifier, context.parentURL);
  return existsSync(wanted) ? next(specifier, context) : { url: placeholder, shortCircuit: true };
}
