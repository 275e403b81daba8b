#!/usr/bin/perl
# The toy engine of toy_engine.py again, in Perl: nothing but what Perl brings along.
use strict;
use warnings;
use integer;    # times use all 64 bits, which a double cannot hold
use JSON::PP;

$| = 1;    # every answer must leave at once: the suite waits for it
my $json = JSON::PP->new->utf8->canonical;
my $never = 9223372036854775807;
my %claims = (
    operators => [qw(window union intersect minus)],
    windows   => [qw(range unbounded)],
    types     => [qw(integer bigint string boolean date timestamp)],
    levels    => ["final"],
);

# Every tuple below a query, as [first instant, first instant no longer, row as text].
sub lives {
    my ($query, $streams) = @_;
    return map { lives($query->{$_}, $streams) } qw(left right) if $query->{op} ne "window";
    return @{ $query->{lives} } if $query->{lives};
    my ($window, @found) = $query->{window};
    for my $element (@{ $streams->{ $query->{stream} }{elements} }) {
        next unless $element->{row};
        my $ts = $element->{ts} + 0;    # times beyond 2^53 are strings
        my $length = $window->{range} // $never;
        my $end = $window->{unbounded} || $ts > $never - $length ? $never : $ts + $length;
        $end++ if ($window->{bounds} // "") eq "[]" && $end < $never;
        push @found, [ $ts, $end, $json->encode($element->{row}) ];
    }
    $query->{lives} = \@found;
    return @found;
}

# The bag of rows that is right at an instant: text => how often.
sub answer {
    my ($query, $streams, $instant) = @_;
    my %bag;
    if ($query->{op} eq "window") {
        $bag{ $_->[2] }++ for grep { $_->[0] <= $instant && $instant < $_->[1] } lives(@_);
        return \%bag;
    }
    my ($left, $right) = map { answer($query->{$_}, $streams, $instant) } qw(left right);
    for my $row (keys %{ { %$left, %$right } }) {
        my ($l, $r) = ($left->{$row} // 0, $right->{$row} // 0);
        my %count = (union => $l + $r, intersect => $l < $r ? $l : $r, minus => $l > $r ? $l - $r : 0);
        $bag{$row} = $count{ $query->{op} };
    }
    return \%bag;
}

sub run {
    my ($case) = @_;
    my %instants = map { $_->[0] => 1, $_->[1] => 1 } lives($case->{query}, $case->{streams});
    delete $instants{$never};
    my ($before, @changes) = {};
    for my $instant (sort { $a <=> $b } keys %instants) {
        my $now = answer($case->{query}, $case->{streams}, $instant);
        for my $row (keys %{ { %$before, %$now } }) {
            my $more = ($now->{$row} // 0) - ($before->{$row} // 0);
            my $entry = [ "$instant", $more > 0 ? 1 : -1, $json->decode($row) ];
            push @changes, ($entry) x abs $more;
        }
        $before = $now;
    }
    return [ { emitted => \@changes, watermark => "never" } ];
}

while (my $line = <STDIN>) {
    my $request = $json->decode($line);
    my $reply =
        $request->{request} eq "hello"
      ? { name => "toy-perl", claims => \%claims, versions => { perl => "$^V" } }
      : { id => $request->{id}, steps => run($request->{case}) };
    print $json->encode($reply), "\n";
}
