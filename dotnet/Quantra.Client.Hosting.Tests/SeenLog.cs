using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Keeps every line that is logged.</summary>
/// <param name="also">Told each line, on the thread that writes it.</param>
internal sealed class SeenLog(Action<SeenLine>? also = null) : ILoggerFactory, ILoggerProvider
{
    private readonly object _gate = new();
    private readonly List<SeenLine> _lines = [];
    private TaskCompletionSource _changed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    /// <summary>All so far.</summary>
    public IReadOnlyList<SeenLine> Lines
    {
        get
        {
            lock (_gate)
                return [.. _lines];
        }
    }

    /// <summary>Waits for a line: what a process writes comes when it comes.</summary>
    public async Task<SeenLine> LineAsync(Predicate<SeenLine> isMeant, CancellationToken cancellationToken)
    {
        while (true)
        {
            Task changed;
            lock (_gate)
            {
                if (_lines.Find(isMeant) is { } found)
                    return found;
                changed = _changed.Task;
            }

            await changed.WaitAsync(Patience.Longest, cancellationToken);
        }
    }

    public void AddProvider(ILoggerProvider provider)
    {
    }

    public ILogger CreateLogger(string categoryName) => new Category(categoryName, this);

    public void Dispose()
    {
    }

    private void Add(SeenLine line)
    {
        lock (_gate)
        {
            _lines.Add(line);
            _changed.SetResult();
            _changed = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        }

        also?.Invoke(line);
    }

    private sealed class Category(string name, SeenLog log) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            log.Add(new SeenLine(name, logLevel, formatter(state, exception)));
    }
}
