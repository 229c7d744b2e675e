import { expect, test } from 'vitest';
import { Mounts } from './mounts.js';

test('a mount comes after the mount that contains it, in any order of adding', () => {
  const mounts = new Mounts();
  mounts.add({ kind: 'empty', at: '/a/b/c', sealed: true });
  mounts.write('/a/b/d');
  mounts.read('/a');
  mounts.add({ kind: 'link', at: '/bin', to: 'usr/bin' });
  mounts.read('/etc/resolv.conf', '/run/resolv.conf');
  expect(mounts.toArgs().join(' ')).toBe(
    '--ro-bind-try /a /a --symlink usr/bin /bin --ro-bind-try /run/resolv.conf /etc/resolv.conf ' +
      '--tmpfs /a/b/c --bind /a/b/d /a/b/d --remount-ro /a/b/c --remount-ro /',
  );
});

test('the innermost mount decides about visibility', () => {
  const mounts = new Mounts();
  mounts.read('/a');
  mounts.add({ kind: 'empty', at: '/a/hidden', sealed: true });
  mounts.write('/a/hidden/shown');
  mounts.add({ kind: 'folder', at: '/cwd' });
  const visible = ['/a', '/a/x', '/a/hidden', '/a/hidden/x', '/a/hidden/shown/x', '/ab', '/cwd', '/'];
  expect(visible.filter((file) => mounts.isVisible(file))).toEqual(['/a', '/a/x', '/a/hidden/shown/x']);
});
