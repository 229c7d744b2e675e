#!/usr/bin/perl
# Reports once, as a JSON-RPC notification, everything it can see, write and connect to from where it runs.
# PROBE in its environment is JSON: folders not to look into, unix sockets (an "@" in front means abstract) and TCP ports.
use strict;
use warnings;
use JSON::PP;
use Socket;

$| = 1;
my $ask = decode_json($ENV{PROBE});
my %opaque = map { $_ => 1 } @{ $ask->{opaque} };
my (@seen, @writable, @special);

sub look {
  my ($path) = @_;
  push @seen, $path;
  return if -l $path;
  push @special, $path if -S $path || -b $path || (-c _ && $path !~ m{^/dev/});
  return unless -d $path;
  my $mine = ($path eq '/' ? '' : $path) . "/.written-by-probe";
  if (open(my $file, '>', $mine)) { close $file; unlink $mine; push @writable, $path }
  return if $opaque{$path};
  opendir(my $folder, $path) or return;
  my @names = sort grep { !/^\.\.?$/ } readdir $folder;
  closedir $folder;
  look(($path eq '/' ? '' : $path) . "/$_") for @names;
}
look('/');

# Files of the kernel that can be opened for writing. Nothing is written. The folders of processes are the probe's own.
my @controls;
sub kernel {
  my ($path) = @_;
  return if -l $path;
  if (-d $path) {
    opendir(my $folder, $path) or return;
    my @names = grep { !/^\.\.?$/ } readdir $folder;
    closedir $folder;
    kernel("$path/$_") for @names;
  } elsif (open(my $file, '+<', $path)) { push @controls, $path }
}
opendir(my $proc, '/proc') or die;
my @entries = readdir $proc;
closedir $proc;
kernel("/proc/$_") for grep { !/^(?:\.\.?|\d+|self|thread-self|net)$/ } @entries;

my @processes = map { command($_) } sort { $a <=> $b } grep { /^\d+$/ } @entries;
sub command { open(my $file, '<', "/proc/$_[0]/comm") or return '?'; my $name = <$file>; chomp $name; return $name }

my %descriptors = map { $_ => readlink("/proc/self/fd/$_") =~ s/\d+//gr } grep { -e "/proc/self/fd/$_" } 0 .. 1023;

my @reached;
for my $name (@{ $ask->{sockets} }) {
  socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or next;
  # Node pads the name of an abstract socket with NUL to its full length, as pack does.
  my $address = $name =~ /^@(.*)/ ? pack('S a108', AF_UNIX, "\0$1") : pack_sockaddr_un($name);
  push @reached, $name if connect($socket, $address);
}
for my $port (@{ $ask->{ports} }) {
  socket(my $socket, AF_INET, SOCK_STREAM, 0) or next;
  push @reached, "tcp" if connect($socket, pack_sockaddr_in($port, INADDR_LOOPBACK));
}

my @read = grep { open(my $file, '<', $_) } @{ $ask->{files} };

print encode_json({ jsonrpc => '2.0', method => 'seen', params => {
  seen => \@seen, writable => \@writable, special => \@special, controls => \@controls, processes => \@processes,
  descriptors => \%descriptors, reached => \@reached, read => \@read, cwd => readlink('/proc/self/cwd'),
  environment => { map { $_ => $ENV{$_} } grep { $_ ne 'PROBE' } keys %ENV },
} }), "\n";
1 while <STDIN>;
