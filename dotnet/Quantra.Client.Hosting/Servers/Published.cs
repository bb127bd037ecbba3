using System.Runtime.CompilerServices;

namespace Quantra.Client.Hosting.Servers;

/// <summary>A value that changes. Whoever follows it sees every change in order, at a speed of his own. Thread-safe.</summary>
internal sealed class Published<T>(T first)
{
    private readonly object _gate = new();
    private Entry _latest = new(first);

    /// <summary>The present value.</summary>
    public T Value => Latest.Value;

    private Entry Latest
    {
        get
        {
            lock (_gate)
                return _latest;
        }
    }

    /// <summary>Changes the value.</summary>
    public void Publish(T value)
    {
        lock (_gate)
        {
            var next = new Entry(value);
            _latest.Next.TrySetResult(next);
            _latest = next;
        }
    }

    /// <summary>Ends whoever follows: the value changes no more.</summary>
    public void End()
    {
        lock (_gate)
            _latest.Next.TrySetResult(null);
    }

    /// <summary>The present value, and then each change.</summary>
    public async IAsyncEnumerable<T> FollowAsync([EnumeratorCancellation] CancellationToken cancellationToken)
    {
        for (var entry = Latest; entry is not null; entry = await entry.Next.Task.WaitAsync(cancellationToken).ConfigureAwait(false))
            yield return entry.Value;
    }

    private sealed class Entry(T value)
    {
        public T Value { get; } = value;

        public TaskCompletionSource<Entry?> Next { get; } = new(TaskCreationOptions.RunContinuationsAsynchronously);
    }
}
