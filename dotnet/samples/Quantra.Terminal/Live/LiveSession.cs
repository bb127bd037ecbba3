using Spectre.Console;

namespace Quantra.Terminal.Live;

/// <summary>Shows a running feed: redrawn in a terminal, one line per day in redirected output.</summary>
/// <param name="console">The console.</param>
/// <param name="server">Returns the status of the program's own server; "" = it has none.</param>
internal sealed class LiveSession(IAnsiConsole console, Func<string> server)
{
    private static readonly TimeSpan Redraw = TimeSpan.FromSeconds(0.1);

    private volatile LiveState? _state;

    /// <summary>Follows the feed until its last day, or until q is pressed.</summary>
    /// <exception cref="Client.QuantraException">A forecast failed.</exception>
    public Task ShowAsync(IAsyncEnumerable<LiveState> feed, CancellationToken cancellationToken) =>
        Console.IsOutputRedirected ? PrintAsync(feed, cancellationToken) : DrawAsync(feed, cancellationToken);

    private async Task PrintAsync(IAsyncEnumerable<LiveState> feed, CancellationToken cancellationToken)
    {
        var (printed, summary) = ("", "");
        await foreach (var state in feed.WithCancellation(cancellationToken))
        {
            if (server() is var now && now != printed)
                await Console.Out.WriteLineAsync(printed = now);
            if (state.Days.Count > 0)
                await Console.Out.WriteLineAsync($"{state.Days[^1]}");
            summary = state.Summary();
        }

        await Console.Out.WriteLineAsync(summary);
    }

    private async Task DrawAsync(IAsyncEnumerable<LiveState> feed, CancellationToken cancellationToken)
    {
        using var ending = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        await console.Live(CreateView()).StartAsync(async live =>
        {
            var following = FollowAsync(feed, ending.Token);
            while (!following.IsCompleted)
            {
                await Task.WhenAny(following, Task.Delay(Redraw, CancellationToken.None));
                live.UpdateTarget(CreateView());
                if (IsQuitPressed())
                    await ending.CancelAsync();
            }

            await following;
            // the feed may have ended while the loop was still drawing an earlier state
            live.UpdateTarget(CreateView());
        });
    }

    private async Task FollowAsync(IAsyncEnumerable<LiveState> feed, CancellationToken ending)
    {
        try
        {
            await foreach (var state in feed.WithCancellation(ending))
                _state = state;
        }
        catch (OperationCanceledException) when (ending.IsCancellationRequested)
        {
            // the user pressed q
        }
    }

    private Spectre.Console.Rendering.IRenderable CreateView() => new LiveView(_state, server()).Render(console.Profile.Width, console.Profile.Height);

    private static bool IsQuitPressed() => !Console.IsInputRedirected && Console.KeyAvailable && Console.ReadKey(intercept: true).KeyChar is 'q' or 'Q';
}
