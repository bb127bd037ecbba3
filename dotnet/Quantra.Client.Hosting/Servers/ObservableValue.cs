using System.Runtime.CompilerServices;

namespace Quantra.Client.Hosting.Servers;

/// <summary>A value that can be observed. Each observer sees every change in order, at its own pace. Thread-safe.</summary>
internal sealed class ObservableValue<T>(T first)
{
    private readonly object _gate = new();
    private Entry _latest = new(first);

    public T Value => Latest.Value;

    private Entry Latest
    {
        get
        {
            lock (_gate)
                return _latest;
        }
    }

    public void Publish(T value)
    {
        lock (_gate)
        {
            var next = new Entry(value);
            _latest.Next.TrySetResult(next);
            _latest = next;
        }
    }

    /// <summary>Completes all observers: the value will not change any more.</summary>
    public void Complete()
    {
        lock (_gate)
            _latest.Next.TrySetResult(null);
    }

    /// <summary>Yields the current value and then each change.</summary>
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
